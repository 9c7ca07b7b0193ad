"""The engines that the grammar benchmark sets side by side, each by its own calls.

Each class is made from a tokenizer; `compile` takes a schema, `start` begins a walk and
gives two functions: one makes the mask, one takes a token and says whether it is legal.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

Json = dict[str, Any]
Walk = tuple[Callable[[], Any], Callable[[int], Any]]  # mask, advance


def table(tokenizer: Any) -> list[bytes]:
    """The bytes of each token, none for a special one."""
    silent = tokenizer.special_ids | tokenizer.eos_ids
    ids = range(tokenizer.vocab_size)
    return [b"" if i in silent else tokenizer.token_bytes(i) for i in ids]


class Tinyllm:
    """tinyllm: mask(state) is a bool (V,), states are values."""

    def __init__(self, tokenizer: Any) -> None:
        from tinyllm import grammar

        vocabulary = grammar.Vocabulary(tokenizer)  # once, as the others prepare theirs
        self.compile = lambda schema: grammar.compile(schema, vocabulary)

    def start(self, grammar: Any) -> Walk:
        """A walk from the start."""
        state = grammar.start()

        def mask() -> Any:
            return grammar.mask(state)

        def advance(token_id: int) -> bool:
            nonlocal state
            state = grammar.advance(state, token_id)
            return True

        return mask, advance


class Filling:
    """An engine that fills one row of bits, a bit for each token."""

    def __init__(self, tokenizer: Any) -> None:
        self.size, (self.eos,) = tokenizer.vocab_size, tokenizer.eos_ids
        self.bits = np.zeros((1, (self.size + 31) // 32), np.int32)


class Outlines(Filling):
    """outlines-core: every state and its tokens are worked out beforehand."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer)
        from outlines_core import Vocabulary

        ids: dict[bytes, list[int]] = {}
        for i, spelling in enumerate(table(tokenizer)):
            if spelling:
                ids.setdefault(spelling, []).append(i)
        self.vocabulary = Vocabulary(self.eos, ids)

    def compile(self, schema: Json) -> Any:
        """The index of the schema's regular expression."""
        from outlines_core import Index, json_schema

        text = json.dumps(schema)
        regex = json_schema.build_regex_from_schema(text, whitespace_pattern="")
        return Index(regex, self.vocabulary)

    def start(self, index: Any) -> Walk:
        """A walk from the start; write_mask_into is what its own kernels call."""
        from outlines_core import Guide

        guide, bits = Guide(index), self.bits
        place = bits.ctypes.data, bits.size, bits.itemsize

        def advance(token_id: int) -> bool:
            guide.advance(token_id, return_tokens=False)
            return True

        return partial(guide.write_mask_into, *place), advance


class Xgrammar(Filling):
    """xgrammar: what does not depend on the stack is worked out beforehand."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer)
        import xgrammar

        info = xgrammar.TokenizerInfo(
            table(tokenizer), vocab_size=self.size, stop_token_ids=[self.eos]
        )
        self.compiler = xgrammar.GrammarCompiler(
            info, max_threads=1, cache_enabled=False
        )

    def compile(self, schema: Json) -> Any:
        """The compiled grammar."""
        return self.compiler.compile_json_schema(
            schema, any_whitespace=False, separators=(",", ":")
        )

    def start(self, compiled: Any) -> Walk:
        """A walk from the start."""
        from xgrammar import GrammarMatcher

        matcher = GrammarMatcher(compiled)
        fill = partial(matcher.fill_next_token_bitmask, self.bits)
        return fill, matcher.accept_token


class Llguidance(Filling):
    """llguidance: next to nothing beforehand; a parser with derivatives as lexer."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer)
        import llguidance

        self.eos_token_id, self.bos_token_id = self.eos, tokenizer.bos_id
        self.tokens = table(tokenizer)
        self.special_token_ids = sorted(tokenizer.special_ids)
        self.encode = tokenizer.encode
        wrapper = llguidance.TokenizerWrapper(self)
        self.tokenizer = llguidance.LLTokenizer(wrapper, n_vocab=self.size)

    def __call__(self, data: bytes) -> list[int]:
        """The ids of a text, which its wrapper asks for."""
        return self.encode(data.decode())

    def compile(self, schema: Json) -> Any:
        """The matcher, which is grammar and walk in one; ValueError if it refuses."""
        from llguidance import LLMatcher

        compact = {"whitespace_flexible": False}
        text = LLMatcher.grammar_from_json_schema(schema, overrides=compact)
        matcher = LLMatcher(self.tokenizer, text)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    def start(self, matcher: Any) -> Walk:
        """A walk from the start."""
        from llguidance.numpy import fill_next_token_bitmask

        matcher.reset()
        fill = partial(fill_next_token_bitmask, matcher, self.bits)
        return fill, matcher.consume_token


ENGINES = {
    "tinyllm": ("tinyllm", Tinyllm),
    "outlines-core": ("outlines_core", Outlines),
    "xgrammar": ("xgrammar", Xgrammar),
    "llguidance": ("llguidance", Llguidance),
}
