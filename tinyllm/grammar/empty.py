"""Why no text of a grammar can be spelled: `explain_empty` names the byte to blame."""

from __future__ import annotations

from tinyllm.grammar.expression import Rules
from tinyllm.grammar.network import FAR, Network
from tinyllm.grammar.pushdown import Pushdown
from tinyllm.grammar.vocabulary import Vocabulary

BYTES = frozenset(range(256))


def explain_empty(rules: Rules, vocabulary: Vocabulary) -> str:
    """The words of the error for a grammar that this vocabulary cannot spell.

    Of several bytes that are missing, the one that a text with few of them needs first.
    """
    if Network(rules, BYTES, BYTES).needed[Network.ENTRY] >= FAR:
        return "the grammar allows no text at all: look for options that exclude it"
    start = "the vocabulary cannot spell any text of the grammar: "
    byte = _missing(rules, vocabulary.spelled)
    if byte is not None:
        return f"{start}no token has the byte {_shown(byte)}"
    byte = _missing(rules, vocabulary.alone)
    if byte is not None:
        return f"{start}the byte {_shown(byte)} occurs only inside longer tokens"
    return f"{start}its tokens do not meet where one text could go on"


def _missing(rules: Rules, there: frozenset[int]) -> int | None:
    """The first byte that is not there of a text that lacks few, None if none does.

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
    return next(b for b in machine.rest(machine.start.control) if b in added)


def _has_text(rules: Rules, there: frozenset[int]) -> bool:
    return Network(rules, there, there).needed[Network.ENTRY] < FAR


def _shown(byte: int) -> str:
    return f"0x{byte:02x} ({chr(byte)!r})" if byte < 0x80 else f"0x{byte:02x}"
