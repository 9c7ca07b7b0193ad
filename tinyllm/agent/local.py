"""The backend that runs here: it steps in between the logits and the sampling.

Public: `LocalBackend`, `Slot`, `OneLine`.

The harness hands over the whole transcript as ids and gets back one slot. A thought is
one free line; a call is written under a grammar compiled from the tools, so that it
always parses. That is all a grammar gives: which tool and which arguments is the
model's own doing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tinyllm import grammar
from tinyllm.agent.protocol import CALL_CEILING, THOUGHT_CEILING, parse_call
from tinyllm.agent.tools import Registry
from tinyllm.decode.generate import Choice, Grammar, can_finish, choose_tokens
from tinyllm.decode.sampling import Sampler
from tinyllm.decode.threads import one_blas_thread
from tinyllm.errors import ContextFullError, GrammarError, ProtocolError, UsageError
from tinyllm.text.stream import TextStream

if TYPE_CHECKING:
    from tinyllm.engine import Engine, Tokenizer

OnText = Callable[[str], object]

GRAMMARS_KEPT = 8  # a few kB of masks each


@dataclass(frozen=True)
class Slot:
    """What the model wrote in one slot, exactly as ids, and what it cost.

    `legal_min` is the smallest number of legal tokens met, None without a grammar;
    `forced` says that the ceiling was near and the grammar wrote the end; `forwarded`
    and `reused` count positions.
    """

    token_ids: tuple[int, ...]
    text: str
    constrained: bool = False
    legal_min: int | None = None
    forced: bool = False
    forwarded: int = 0
    reused: int = 0
    choices: tuple[Choice, ...] = field(default=(), repr=False, compare=False)

    @property
    def tokens(self) -> int:
        """How many tokens the slot holds; the line break that ended it is not kept."""
        return len(self.token_ids)


class OneLine:
    """A mask in the shape of a grammar: one line of free text, ended by a line break.

    State 0 is the line, state 1 its end. A token with a line break inside is illegal,
    since text would follow the break; so are special ids, except that eos may end the
    line where `eos_ends`.
    """

    def __init__(self, tokenizer: Tokenizer, eos_ends: bool = False) -> None:
        self.eos_ids = frozenset(tokenizer.eos_ids) if eos_ends else frozenset()
        forbidden = set(tokenizer.special_ids) - self.eos_ids
        contents = [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
        legal = [
            i not in forbidden and (b"\n" not in content or content == b"\n")
            for i, content in enumerate(contents)
        ]
        self.breaks = frozenset(i for i, c in enumerate(contents) if c == b"\n")
        self._line = np.array(legal, dtype=bool)  # (V,)
        self._end = np.zeros_like(self._line)  # (V,)
        self._line.flags.writeable = self._end.flags.writeable = False

    def start(self) -> int:
        """The state before the first token."""
        return 0

    def mask(self, state: int) -> NDArray[np.bool_]:
        """Which tokens are legal: bool (V,), read-only."""
        return self._end if state else self._line

    def advance(self, state: int, token_id: int) -> int:
        """The state after a legal token; GrammarError if it is illegal."""
        if not self.mask(state)[token_id]:
            raise GrammarError(f"token {token_id} cannot stand in a free line")
        return int(token_id in self.breaks)

    def is_done(self, state: int) -> bool:
        """Whether the line has ended, after which nothing is legal."""
        return state == 1

    def finish(self, state: int) -> tuple[int, ...]:
        """The shortest completion: a line may stop anywhere, so none is needed."""
        return ()


class LocalBackend:
    """Thoughts and calls from a model on this machine.

    The session persists: of a transcript only the ids by which it grew are forwarded.
    `calls`, `parsed` and `tokens` count over the life of the backend.
    """

    def __init__(
        self,
        lm: Engine,
        tools: Registry | None = None,
        *,
        temperature: float = 0.0,
        constrain: bool = True,
        seed: int = 0,
        keep_choices: bool = False,
    ) -> None:
        self.lm = lm
        self.tokenizer = lm.tokenizer
        self.session = lm.session()
        self.n_ctx = self.session.n_ctx
        self.constrain = constrain
        self.keep_choices = keep_choices
        self.calls = self.parsed = self.tokens = 0
        self._sampling = (temperature, seed)
        self._grammars: dict[str, Grammar] = {}
        self._vocabulary = grammar.Vocabulary(self.tokenizer) if constrain else None
        self._thought = OneLine(self.tokenizer)
        self._free_call = OneLine(self.tokenizer, eos_ends=True)
        self.set_tools(tools)
        self.reset()

    def set_tools(self, tools: Registry | None) -> None:
        """Swap the tools; model, session and grammars made before are kept.

        UsageError if calls are constrained and there are no tools.
        """
        if self.constrain and not tools:
            raise UsageError("a constrained call needs tools, or say constrain=False")
        self.tools = tools or Registry([])
        self._grammar = self._compiled() if self.constrain else self._free_call

    def reset(self) -> None:
        """Start afresh: the session is empty and the sampler at its seed."""
        temperature, seed = self._sampling
        self.session.reset()
        self.sampler = Sampler(temperature=temperature, seed=seed)

    def thought(self, token_ids: Sequence[int], on_text: OnText | None = None) -> Slot:
        """The thought that follows the transcript.

        `on_text` gets the text piece by piece while it is written. ContextFullError if
        there is no room.
        """
        return self._slot(token_ids, self._thought, THOUGHT_CEILING, on_text)

    def call(self, token_ids: Sequence[int], on_text: OnText | None = None) -> Slot:
        """The call that follows the transcript.

        Without `constrain` it is free text to the end of the line, stripped.
        ContextFullError if the context, not the ceiling, would cut the call short: what
        a grammar writes to squeeze it in is no decision of the model's.
        """
        slot = self._slot(token_ids, self._grammar, CALL_CEILING, on_text)
        if slot.forced and self.n_ctx - len(token_ids) < CALL_CEILING:
            raise _full(len(token_ids), self.n_ctx)
        self.calls += 1
        self.parsed += _parses(slot.text)
        return slot

    def _slot(
        self,
        token_ids: Sequence[int],
        rules: Grammar,
        ceiling: int,
        on_text: OnText | None,
    ) -> Slot:
        """One slot under these rules, in as many tokens as there is room for."""
        free = isinstance(rules, OneLine)
        budget = self._budget(len(token_ids), ceiling, rules)
        before = self.session.forwarded, self.session.reused
        with one_blas_thread():
            logits = self.session.feed(token_ids)  # (V,)
            chosen = choose_tokens(self.session, logits, self.sampler, budget, rules)
            choices, text = self._collected(chosen, on_text)
        legal = [choice.legal for choice in choices if choice.legal is not None]
        self.tokens += len(choices)
        return Slot(
            token_ids=tuple(choice.token_id for choice in choices),
            text=text.strip(),
            constrained=not free,
            legal_min=None if free else min(legal, default=None),
            forced=any(choice.forced for choice in choices),
            forwarded=self.session.forwarded - before[0],
            reused=self.session.reused - before[1],
            choices=tuple(choices) if self.keep_choices else (),
        )

    def _budget(self, length: int, ceiling: int, rules: Grammar) -> int:
        """How many tokens a slot may have after `length` positions."""
        room = self.n_ctx - length
        short = room < ceiling and not can_finish(rules, rules.start(), room)
        if room < 1 or short:
            raise _full(length, self.n_ctx)
        return min(ceiling, room)

    def _collected(
        self, chosen: Iterable[Choice], on_text: OnText | None
    ) -> tuple[list[Choice], str]:
        """The choices up to a line break, which is not kept, and their text."""
        choices: list[Choice] = []
        stream = TextStream(self.tokenizer)
        say = on_text or (lambda text: None)
        pieces = []
        for choice in chosen:
            if choice.token_id in self._thought.breaks:
                break
            choices.append(choice)
            pieces.append(stream.push(choice.token_id))
            say(pieces[-1])
        pieces.append(stream.flush())
        say(pieces[-1])
        return choices, "".join(pieces)

    def _compiled(self) -> Grammar:
        """The grammar of the tools; the last few registries' are remembered."""
        schema = self.tools.schema()
        key = json.dumps(schema)
        if key not in self._grammars:
            if len(self._grammars) >= GRAMMARS_KEPT:
                del self._grammars[next(iter(self._grammars))]
            assert self._vocabulary is not None, "a constrained backend has made it"
            self._grammars[key] = grammar.compile(schema, self._vocabulary)
        return self._grammars[key]


def _full(length: int, n_ctx: int) -> ContextFullError:
    """The error for a transcript that leaves too little room for a reply."""
    taken = f"{length} of {n_ctx} positions are taken"
    return ContextFullError(f"no room for the reply: {taken}; try fewer, shorter steps")


def _parses(text: str) -> bool:
    """Whether the text is a call."""
    try:
        parse_call(text)
    except ProtocolError:
        return False
    return True
