"""How a code point may be written inside a JSON string (RFC 8259, section 7).

Public: paths, canonical_paths, trie_of, Trie.

Raw, as a short escape (\\n), as \\uXXXX in any case, or as a pair of surrogate escapes.
The canonical spelling is that of Python's json.dumps(ensure_ascii=False): raw wherever
that is legal, a short escape where there is one (but never \\/), \\u00xx for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable

from tinyllm.grammar import utf8
from tinyllm.grammar.utf8 import ANY, Range, Spelling, merge, overlap, split

_SHORT = {8: "b", 9: "t", 10: "n", 12: "f", 13: "r", 34: '"', 47: "/", 92: "\\"}
_RAW: tuple[Range, ...] = ((0x20, 0x21), (0x23, 0x5B), (0x5D, utf8.MAX_CODE_POINT))
_BASIC, _FURTHER = (0, 0xFFFF), (0x10000, utf8.MAX_CODE_POINT)
Trie = list[list[tuple[frozenset[int], int]]]  # ~i is the target of group i
_BACKSLASH, _U = frozenset(b"\\"), frozenset(b"u")
_HEX = [frozenset((f"{digit:x}" + f"{digit:X}").encode()) for digit in range(16)]
_LOWER = [frozenset(f"{digit:x}".encode()) for digit in range(16)]


def paths(ranges: Iterable[Range]) -> list[Spelling]:
    """Return every spelling of one code point of `ranges`, as paths of byte sets."""
    wanted = list(overlap(merge(ranges), ANY))
    return [
        *utf8.paths(overlap(wanted, _RAW)),
        *_short(wanted, _SHORT),
        *(path for low, high in overlap(wanted, [_BASIC]) for path in _hex(low, high)),
        *(
            path
            for low, high in overlap(wanted, [_FURTHER])
            for path in _pair(low, high)
        ),
    ]


def canonical_paths(ranges: Iterable[Range]) -> list[Spelling]:
    """Return the canonical spelling of each code point of `ranges`, as paths."""
    wanted = list(overlap(merge(ranges), ANY))
    short = {code: letter for code, letter in _SHORT.items() if letter != "/"}
    rest = [code for code in range(0x20) if code not in short]
    hidden = [(code, code) for code in rest if any(overlap(wanted, [(code, code)]))]
    return [
        *utf8.paths(overlap(wanted, _RAW)),
        *_short(wanted, short),
        *(path for code, _ in hidden for path in _hex(code, code, _LOWER)),
    ]


def _short(wanted: list[Range], letters: dict[int, str]) -> list[Spelling]:
    found = [c for code, c in letters.items() if any(overlap(wanted, [(code, code)]))]
    return [(_BACKSLASH, frozenset("".join(found).encode()))] if found else []


def _hex(low: int, high: int, digits: list[frozenset[int]] = _HEX) -> list[Spelling]:
    """Return the escapes of the code units from `low` to `high`."""
    spelled = split(_digits(low), _digits(high), 0, 15)
    return [
        (
            _BACKSLASH,
            _U,
            *(frozenset[int]().union(*(digits[d] for d in s)) for s in path),
        )
        for path in spelled
    ]


def _digits(unit: int) -> list[int]:
    return [unit >> shift & 15 for shift in (12, 8, 4, 0)]


def _pair(low: int, high: int) -> list[Spelling]:
    """Return the pairs of surrogate escapes of the code points from `low` to `high`."""
    ends = [divmod(code - 0x10000, 0x400) for code in (low, high)]
    halves = split(ends[0], ends[1], 0, 0x3FF)
    return [
        first + second
        for leads, trails in halves
        for first in _hex(0xD800 + min(leads), 0xD800 + max(leads))
        for second in _hex(0xDC00 + min(trails), 0xDC00 + max(trails))
    ]


def trie_of(groups: list[list[Spelling]]) -> Trie:
    """Return the trie of several groups of spellings; node 0 is its root."""
    root = frozenset((path, ~i) for i, group in enumerate(groups) for path in group)
    number, order = {root: 0}, [root]
    trie: Trie = []
    for node in order:  # grows while it is walked
        rows: dict[frozenset[tuple[Spelling, int]], list[int]] = {}
        for byte in sorted({byte for path, _ in node for byte in path[0]}):
            tails = frozenset((path[1:], to) for path, to in node if byte in path[0])
            rows.setdefault(tails, []).append(byte)
        edges = []
        for tails, first in rows.items():
            path, to = next(iter(tails))
            if path and tails not in number:
                number[tails] = len(order)
                order.append(tails)
            edges.append((frozenset(first), number[tails] if path else to))
        trie.append(edges)
    return trie
