"""Merge neighbours, best pair first, until none is left: the heart of every BPE.

`merge_all(symbols, found)` is what byte-level BPE (symbols are ids) and SentencePiece
(symbols are texts) share.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import TypeVar

Symbol = TypeVar("Symbol", int, str)


def merge_all(
    symbols: Sequence[Symbol],
    found: Callable[[Symbol, Symbol], tuple[float, Symbol] | None],
) -> list[Symbol]:
    """The symbols after all merges, lowest rank first and then the leftmost.

    `found(a, b)` is the rank of a pair and what it becomes, None if it stays apart. A
    heap of candidate pairs over a linked list: n log n in the number of symbols.

    >>> merge_all("aaab", lambda a, b: (0, a + b) if a + b in ("aa", "ab") else None)
    ['aa', 'ab']
    """
    parts: list[Symbol | None] = list(symbols)
    n = len(parts)
    left, right = list(range(-1, n - 1)), list(range(1, n + 1))
    heap: list[tuple[float, int, Symbol, Symbol, Symbol]] = []

    def offer(i: int, j: int) -> None:
        if i >= 0 and j < n and (pair := found(parts[i], parts[j])):  # type: ignore
            heapq.heappush(heap, (pair[0], i, parts[i], parts[j], pair[1]))  # type: ignore

    for i in range(n - 1):
        offer(i, i + 1)
    while heap:
        _, i, a, b, merged = heapq.heappop(heap)
        j = right[i]
        if parts[i] != a or j >= n or parts[j] != b:
            continue  # a candidate that an earlier merge has used up
        parts[i], parts[j] = merged, None
        right[i] = right[j]
        if right[i] < n:
            left[right[i]] = i
        offer(i, right[i])
        offer(left[i], i)
    return [part for part in parts if part is not None]
