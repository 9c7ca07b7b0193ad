"""Sets of code points as expressions over UTF-8 bytes.

Public: code_points, paths, one_of, split, complement, merge, overlap, ANY,
MAX_CODE_POINT.

A set is a list of ranges (first, last), both ends included. Surrogates are never part
of a set, since well-formed UTF-8 (RFC 3629) cannot hold them.

Before: grammar.expression. Next: grammar.regex.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tinyllm.grammar.expression import Alternation, ByteSet, Concatenation, Expression

Range = tuple[int, int]
Spelling = tuple[frozenset[int], ...]  # a set of bytes for each place
Digits = Sequence[int]
MAX_CODE_POINT = 0x10FFFF
ANY: tuple[Range, ...] = ((0, 0xD7FF), (0xE000, MAX_CODE_POINT))
_BY_LENGTH = ((0, 0x7F), (0x80, 0x7FF), (0x800, 0xFFFF), (0x10000, MAX_CODE_POINT))


def code_points(ranges: Iterable[Range]) -> Expression:
    """Return the expression of the UTF-8 bytes of one code point of `ranges`.

    code_points([(0x61, 0x63)]) is the byte set a, b, c; é to ê is the byte 0xc3 and
    then 0xa9 or 0xaa.
    """
    return one_of(paths(ranges))


def one_of(spellings: Iterable[Spelling]) -> Expression:
    """Return the expression that matches any one of the spellings."""
    options = [
        ByteSet(path[0]) if len(path) == 1 else Concatenation(tuple(map(ByteSet, path)))
        for path in spellings
    ]
    if not options:
        return ByteSet(frozenset())
    return options[0] if len(options) == 1 else Alternation(tuple(options))


def paths(ranges: Iterable[Range]) -> list[Spelling]:
    """Return the UTF-8 spellings of one code point of `ranges`: paths of byte sets.

    The splitting is that of utf8-ranges (Russ Cox, RE2).
    """
    ascii_bytes: set[int] = set()
    longer: list[Spelling] = []
    for first, last in overlap(merge(ranges), ANY):
        for low, high in overlap([(first, last)], _BY_LENGTH):
            if high <= 0x7F:
                ascii_bytes.update(range(low, high + 1))
            else:
                longer += split(_encode(low), _encode(high), 0x80, 0xBF)
    return ([(frozenset(ascii_bytes),)] if ascii_bytes else []) + longer


def complement(ranges: Iterable[Range]) -> list[Range]:
    """Return the ranges of all code points outside `ranges`: (97, 99) leaves two."""
    gaps, start = [], 0
    for first, last in merge(ranges):
        if start < first:
            gaps.append((start, first - 1))
        start = last + 1
    if start <= MAX_CODE_POINT:
        gaps.append((start, MAX_CODE_POINT))
    return gaps


def merge(ranges: Iterable[Range]) -> list[Range]:
    """Return the same set as sorted ranges that neither touch nor overlap."""
    merged: list[Range] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def overlap(ranges: Iterable[Range], limits: Iterable[Range]) -> Iterator[Range]:
    """Return the parts of `ranges` inside `limits`."""
    limits = tuple(limits)
    for first, last in ranges:
        for low, high in limits:
            if max(first, low) <= min(last, high):
                yield max(first, low), min(last, high)


def _encode(code_point: int) -> bytes:
    return chr(code_point).encode("utf-8")


def split(low: Digits, high: Digits, least: int, most: int) -> list[Spelling]:
    """Return the digit strings from `low` to `high`, of one length, as paths.

    Digits run from `least` to `most`, the first one excepted: 19 to 32 in base ten is
    1 9, then 2 0-9, then 3 0-2.
    """
    if len(low) == 1:
        return [(_between(low[0], high[0]),)]
    if low[0] == high[0]:
        return _prefixed(low[0], low[0], split(low[1:], high[1:], least, most))
    lowest, highest = [least] * (len(low) - 1), [most] * (len(low) - 1)
    first, last, ends = low[0], high[0], list[Spelling]()
    if list(low[1:]) != lowest:
        # the lowest first digit, with only some of the tails
        ends += _prefixed(first, first, split(low[1:], highest, least, most))
        first += 1
    if list(high[1:]) != highest:
        # the highest one, too
        ends += _prefixed(last, last, split(lowest, high[1:], least, most))
        last -= 1
    if first > last:
        return ends
    # those in between, with every tail
    return ends + _prefixed(first, last, split(lowest, highest, least, most))


def _prefixed(first: int, last: int, tails: list[Spelling]) -> list[Spelling]:
    return [(_between(first, last), *tail) for tail in tails]


def _between(first: int, last: int) -> frozenset[int]:
    return frozenset(range(first, last + 1))
