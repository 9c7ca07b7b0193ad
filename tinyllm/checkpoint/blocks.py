"""How the numbers of a tensor lie in a file: `KINDS`, and `decode` to float32.

A quantised kind stores blocks of 32 numbers along a row: one or two float16 constants,
then 32 small whole numbers. Everything is worked out in float32, many blocks at once.
Source: ggml, ggml-common.h (block_q8_0, block_q4_0, block_q4_1) and their dequantize_row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Kind:
    """`block` numbers take `size` bytes, which `decode` turns from (n, size) uint8 to
    (n, block) float32.
    """

    block: int
    size: int
    decode: Callable[[Bytes], Array]


def decode(kind: str, raw: Bytes) -> Array:
    """Return the numbers in `raw` (n * size bytes of a kind in KINDS): float32, 1-D."""
    found = KINDS[kind]
    return found.decode(raw.reshape(-1, found.size)).reshape(-1)


def bf16(raw: Bytes) -> Array:
    """Return bfloat16 as float32: its bits are the upper half, so nothing is rounded."""
    return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)


def q8_0(raw: Bytes) -> Array:
    """Return d * q: d float16, then 32 signed bytes q."""
    return _constant(raw, 0) * raw[:, 2:].view(np.int8).astype(np.float32)


def q4_0(raw: Bytes) -> Array:
    """Return d * (q - 8): d float16, then 16 bytes of two q each."""
    return _constant(raw, 0) * (_nibbles(raw[:, 2:]) - np.float32(8))


def q4_1(raw: Bytes) -> Array:
    """Return d * q + m: d and m float16, then 16 bytes of two q each."""
    numbers = _nibbles(raw[:, 4:])
    numbers *= _constant(raw, 0)
    numbers += _constant(raw, 2)
    return numbers


def _constant(raw: Bytes, at: int) -> Array:
    """Return the float16 at byte `at` of each block: (n, 1)."""
    two = np.ascontiguousarray(raw[:, at : at + 2])
    return two.view("<f2").astype(np.float32)


def _nibbles(packed: Bytes) -> Array:
    """Return numbers 0 to 15 (n, 32): the lower halves of the 16 bytes, then the upper."""
    numbers = np.empty((len(packed), 32), np.float32)
    numbers[:, :16] = packed & 15
    numbers[:, 16:] = packed >> 4
    return numbers


KINDS = {
    "F32": Kind(1, 4, lambda raw: raw.view("<f4").astype(np.float32)),
    "F16": Kind(1, 2, lambda raw: raw.view("<f2").astype(np.float32)),
    "BF16": Kind(1, 2, bf16),
    "Q8_0": Kind(32, 34, q8_0),
    "Q4_0": Kind(32, 18, q4_0),
    "Q4_1": Kind(32, 20, q4_1),
}
