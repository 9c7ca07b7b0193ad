"""Why a token is illegal, and why a grammar has no text, in the words of a byte.

Public: Explanation, explain, explain_empty, written.

Before: grammar.completion. Next: grammar.json_text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from tinyllm.grammar.expression import FAR, Rules
from tinyllm.grammar.network import Network
from tinyllm.grammar.pushdown import Pushdown, State
from tinyllm.grammar.vocabulary import Vocabulary

BYTES = frozenset(range(256))
NAMES = {0x20: "space", 0x09: "tab", 0x0A: "line feed", 0x0D: "carriage return"}


@dataclass(frozen=True)
class Explanation:
    """A verdict on one token in one state.

    Where a byte fails, `at` is its place in `data`, the token's bytes, and `expected`
    are the bytes that could stand there; else `at` is None.
    """

    token_id: int
    data: bytes
    legal: bool
    reason: str
    at: int | None = None
    expected: frozenset[int] = frozenset()

    def __str__(self) -> str:
        verdict = "legal" if self.legal else "illegal"
        return f"token {self.token_id} {self.data!r} is {verdict}: {self.reason}"


def explain(
    machine: Pushdown, vocabulary: Vocabulary, state: State, token_id: int, live: bool
) -> Explanation:
    """Return why a token is legal or not in a state.

    live: whether tokens can complete the text after it, where its bytes are legal.
    """
    whole = isinstance(token_id, int | np.integer)
    if not whole or not 0 <= token_id < vocabulary.size:
        reason = f"the vocabulary has the ids 0 to {vocabulary.size - 1}"
        return Explanation(token_id, b"", False, reason)
    data = vocabulary.token_bytes[token_id]
    if not data:
        return _silent(machine, vocabulary, state, token_id)
    for at, byte in enumerate(data):
        after = machine.next(state, byte)
        if after is None:
            expected = machine.legal_bytes(state)
            end = "the end" if machine.may_end(state) else ""
            words = " or ".join(filter(None, [written(expected), end]))
            reason = f"byte {at} is {written([byte])}, expected {words}"
            return Explanation(token_id, data, False, reason, at, expected)
        state = after
    reason = "each byte fits" if live else "no tokens could complete the text after it"
    return Explanation(token_id, data, live, reason)


def _silent(
    machine: Pushdown, vocabulary: Vocabulary, state: State, token_id: int
) -> Explanation:
    """Return the verdict on a token without bytes of its own."""
    if token_id not in vocabulary.eos_ids:
        return Explanation(token_id, b"", False, "it stands for no text")
    if machine.may_end(state):
        return Explanation(token_id, b"", True, "the text is complete")
    expected = machine.legal_bytes(state)
    reason = f"the text is not complete, expected {written(expected)}"
    return Explanation(token_id, b"", False, reason, 0, expected)


def written(data: Iterable[int]) -> str:
    """Return bytes in words, neighbours as a range: '0' to '9', byte 80 to BF."""
    # Neighbours keep their distance to their index.
    runs = groupby(enumerate(sorted(data)), key=lambda pair: pair[1] - pair[0])
    parts = []
    for _, run in runs:
        values = [byte for _, byte in run]
        parts.append(_range(values[0], values[-1]))
    return ", ".join(parts)


def _range(first: int, last: int) -> str:
    if first == last:
        return _one(first)
    begin, end = _one(first), _one(last)
    return f"{begin} to {end.removeprefix('byte ') if begin[:4] == 'byte' else end}"


def _one(byte: int) -> str:
    if byte in NAMES:
        return NAMES[byte]
    return repr(chr(byte)) if 0x20 < byte < 0x7F else f"byte {byte:02X}"


def explain_empty(rules: Rules, vocabulary: Vocabulary) -> str:
    """Return the error's words for a grammar that this vocabulary cannot spell.

    Of several bytes that are missing, the one that a text with few of them needs first.
    """
    if Network(rules, BYTES, BYTES).needed[Network.ENTRY] >= FAR:
        return "the grammar allows no text at all: look for options that exclude it"
    start = "the vocabulary cannot spell any text of the grammar: "
    byte = _missing(rules, vocabulary.alphabet)
    if byte is not None:
        return f"{start}no token has the byte {_shown(byte)}"
    byte = _missing(rules, vocabulary.alone)
    if byte is not None:
        return f"{start}the byte {_shown(byte)} occurs only inside longer tokens"
    return f"{start}its tokens do not meet where one text could go on"


def _missing(rules: Rules, there: frozenset[int]) -> int | None:
    """Return the first missing byte of a text that lacks few, None if none does.

    All others are added, and taken out again one by one where there is a text without.
    """
    if _has_text(rules, there):
        return None
    used = {
        b for e in Network(rules, BYTES, BYTES).edges for set_, _ in e for b in set_
    }
    added = frozenset(used - there)
    for byte in sorted(added):
        if _has_text(rules, there | (added - {byte})):
            added -= {byte}
    machine = Pushdown(rules, there | added, there | added)
    return next(b for b in machine.rest(machine.start) if b in added)


def _has_text(rules: Rules, there: frozenset[int]) -> bool:
    return Network(rules, there, there).needed[Network.ENTRY] < FAR


def _shown(byte: int) -> str:
    return f"0x{byte:02x} ({chr(byte)!r})" if byte < 0x80 else f"0x{byte:02x}"
