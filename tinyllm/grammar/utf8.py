"""Sets of code points as expressions over UTF-8 bytes.

Public: code_points, complement, ANY, MAX_CODE_POINT.

A set is a list of ranges (first, last), both ends included. Surrogates are never part
of a set, since well-formed UTF-8 (RFC 3629) cannot hold them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tinyllm.grammar.expression import Alternation, ByteSet, Expression, Sequence

Range = tuple[int, int]
MAX_CODE_POINT = 0x10FFFF
ANY: tuple[Range, ...] = ((0, 0xD7FF), (0xE000, MAX_CODE_POINT))
_BY_LENGTH = ((0, 0x7F), (0x80, 0x7FF), (0x800, 0xFFFF), (0x10000, MAX_CODE_POINT))


def code_points(ranges: Iterable[Range]) -> Expression:
    """The expression that matches the UTF-8 bytes of one code point of `ranges`.

    code_points([(0x61, 0x63)]) is the byte set a, b, c; é to ê is the byte 0xc3 and
    then 0xa9 or 0xaa. The splitting is that of utf8-ranges (Russ Cox, RE2).
    """
    ascii_bytes: set[int] = set()
    longer: list[Expression] = []
    for first, last in _intersect(_merge(ranges), ANY):
        for low, high in _intersect([(first, last)], _BY_LENGTH):
            if high <= 0x7F:
                ascii_bytes.update(range(low, high + 1))
            else:
                longer.extend(_sequences(_encode(low), _encode(high)))
    if not longer:
        return ByteSet(frozenset(ascii_bytes))
    head = [ByteSet(frozenset(ascii_bytes))] if ascii_bytes else []
    return Alternation((*head, *longer))


def complement(ranges: Iterable[Range]) -> list[Range]:
    """The ranges of all code points outside `ranges`: (97, 99) leaves two."""
    gaps, start = [], 0
    for first, last in _merge(ranges):
        if start < first:
            gaps.append((start, first - 1))
        start = last + 1
    if start <= MAX_CODE_POINT:
        gaps.append((start, MAX_CODE_POINT))
    return gaps


def _merge(ranges: Iterable[Range]) -> list[Range]:
    merged: list[Range] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def _intersect(ranges: Iterable[Range], limits: Iterable[Range]) -> Iterator[Range]:
    limits = tuple(limits)
    for first, last in ranges:
        for low, high in limits:
            if max(first, low) <= min(last, high):
                yield max(first, low), min(last, high)


def _encode(code_point: int) -> bytes:
    return chr(code_point).encode("utf-8")


def _sequences(low: bytes, high: bytes) -> list[Expression]:
    """The byte strings of one length from `low` to `high`, as sequences of sets."""
    if len(low) == 1:
        return [_between(low[0], high[0])]
    if low[0] == high[0]:
        return _prefixed(low[0], low[0], low[1:], high[1:])
    lowest, highest = b"\x80" * (len(low) - 1), b"\xbf" * (len(low) - 1)
    first, last, ends = low[0], high[0], []
    if low[1:] != lowest:
        ends += _prefixed(first, first, low[1:], highest)
        first += 1
    if high[1:] != highest:
        ends += _prefixed(last, last, lowest, high[1:])
        last -= 1
    return ends + (_prefixed(first, last, lowest, highest) if first <= last else [])


def _prefixed(first: int, last: int, low: bytes, high: bytes) -> list[Expression]:
    lead = _between(first, last)
    return [Sequence((lead, tail)) for tail in _sequences(low, high)]


def _between(first: int, last: int) -> ByteSet:
    return ByteSet(frozenset(range(first, last + 1)))
