"""A tokenizer with chosen tokens, and what else the tests of the grammar share."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tinyllm.grammar.expression import (
    Alternation,
    ByteSet,
    Call,
    Concatenation,
    Expression,
    Repetition,
    Rules,
    literal,
    optional,
)
from tinyllm.grammar.jsonschema.automaton import Automaton
from tinyllm.grammar.mask import TokenGrammar
from tinyllm.grammar.pushdown import Pushdown, State

PAD, BOS, EOS = 0, 1, 2
N_SPECIAL = 3


class ToyTokenizer:
    """Ids 0 to 2 are pad, bos and eos; the given tokens follow."""

    dummy_prefix = False

    def __init__(self, tokens: list[bytes]) -> None:
        self.tokens = [b"", b"", b"", *tokens]
        self.vocab_size = len(self.tokens)
        self.eos_ids = frozenset({EOS})
        self.special_ids = frozenset({PAD, BOS, EOS})

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of a token."""
        return self.tokens[token_id]

    def id_of(self, data: bytes) -> int:
        """The id of the token with these bytes."""
        return self.tokens.index(data, N_SPECIAL)

    def text(self, token_ids: tuple[int, ...] | list[int]) -> bytes:
        """The bytes of several tokens."""
        return b"".join(self.tokens[i] for i in token_ids)


def characters(text: str) -> list[bytes]:
    """One token for each character of a text."""
    return [character.encode() for character in text]


def byte_level(*merges: bytes) -> ToyTokenizer:
    """All 256 bytes and some longer tokens."""
    return ToyTokenizer([bytes([i]) for i in range(256)] + list(merges))


def accepts(automaton: Automaton, data: bytes) -> bool:
    """Whether the automaton accepts these bytes as a whole."""
    return automaton.accepts(data)


def walk(grammar: TokenGrammar, token_ids: tuple[int, ...] | list[int]) -> State:
    """The state after these tokens."""
    state = grammar.start()
    for token_id in token_ids:
        state = grammar.advance(state, token_id)
    return state


def states_of(grammar: TokenGrammar) -> Iterator[State]:
    """Every state that legal tokens can lead to, each once."""
    seen, work = {grammar.start()}, [grammar.start()]
    while work:
        state = work.pop()
        yield state
        for token_id in grammar.mask(state).nonzero()[0].tolist():
            after = grammar.advance(state, token_id)
            if after not in seen:
                seen.add(after)
                work.append(after)


def is_json(text: str, kind: type) -> bool:
    """Whether Python's reader finds a value of one type, without space around it."""
    try:
        return type(json.loads(text)) is kind and text == text.strip()
    except ValueError:
        return False


def after(machine: Pushdown, data: bytes) -> State | None:
    """The state of a machine after these bytes, None where one is illegal."""
    state: State | None = machine.start
    for byte in data:
        state = state and machine.next(state, byte)
    return state


def json_rules() -> Rules:
    """JSON values that call each other: small numbers, strings of a and b, null."""
    digits = Repetition(ByteSet(frozenset(b"012")))
    number = Alternation(
        (literal("0"), Concatenation((ByteSet(frozenset(b"12")), digits)))
    )
    escape = Alternation((literal('\\"'), ByteSet(frozenset(b"ab"))))
    member = Concatenation((Call("string"), literal(":"), Call("value")))
    kinds = ["string", "number", "array", "object"]
    rules: dict[str, Expression] = {
        "value": Alternation((literal("null"), *map(Call, kinds))),
        "string": Concatenation((literal('"'), Repetition(escape), literal('"'))),
        "number": Concatenation((optional(literal("-")), number)),
        "array": _listed("[", Call("value"), "]"),
        "object": _listed("{", member, "}"),
    }
    return Rules(Call("value"), rules)


def _listed(begin: str, item: Expression, end: str) -> Expression:
    more = Repetition(Concatenation((literal(","), item)))
    return Concatenation(
        (literal(begin), optional(Concatenation((item, more))), literal(end))
    )


JSON_TOKENS = [*characters('[]{},:"\\ab-012nul'), b"]]", b"}]", b'"}]', b',{"', b'":"']
