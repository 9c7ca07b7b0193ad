"""How the numbers of a tensor lie in a file: `KINDS`, and `decode` to float32.

A quantised kind stores blocks of 32 numbers along a row: one or two float16 constants,
then 32 small whole numbers. Everything is worked out in float32, many blocks at once.
Source: ggml, ggml-common.h: block_q8_0, block_q4_0, block_q4_1, and ggml-quants.c.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Bytes = NDArray[np.uint8]


CHUNK = 2**14  # blocks decoded at once: what is in between stays in the cache


@dataclass(frozen=True)
class Kind:
    """`block` numbers take `size` bytes; `decode` turns (n, size) uint8 into (n, block)
    float32, which it is given to fill.
    """

    block: int
    size: int
    decode: Callable[[Bytes, Array], object]


def decode(kind: str, raw: Bytes) -> Array:
    """Return the numbers in `raw` (n * size bytes of a kind in KINDS): float32, 1-D."""
    found = KINDS[kind]
    blocks = raw.reshape(-1, found.size)  # (n, size)
    numbers = np.empty((len(blocks), found.block), np.float32)
    with np.errstate(invalid="ignore"):  # an infinite scale makes a NaN, no warning
        for i in range(0, len(blocks), CHUNK):
            found.decode(blocks[i : i + CHUNK], numbers[i : i + CHUNK])
    return numbers.reshape(-1)


def f32(raw: Bytes, out: Array) -> None:
    """Fill out with the float32 that the bytes are."""
    out[:] = raw.view("<f4")


def f16(raw: Bytes, out: Array) -> None:
    """Fill out with float16 as float32."""
    out[:] = raw.view("<f2")


def bf16(raw: Bytes, out: Array) -> None:
    """Fill out with bfloat16 as float32: its bits are the upper half, none is lost."""
    np.left_shift(raw.view("<u2"), 16, out=out.view(np.uint32), dtype=np.uint32)


def q8_0(raw: Bytes, out: Array) -> None:
    """Fill out with d * q: d float16, then 32 signed bytes q."""
    np.multiply(raw[:, 2:].view(np.int8), _constant(raw, 0), out=out)


def q4_0(raw: Bytes, out: Array) -> None:
    """Fill out with d * (q - 8): d float16, then 16 bytes of two q each."""
    _nibbles(raw[:, 2:], out)
    out -= 8
    out *= _constant(raw, 0)


def q4_1(raw: Bytes, out: Array) -> None:
    """Fill out with d * q + m: d and m float16, then 16 bytes of two q each."""
    _nibbles(raw[:, 4:], out)
    out *= _constant(raw, 0)
    out += _constant(raw, 2)


def _constant(raw: Bytes, at: int) -> Array:
    """Return the float16 at byte `at` of each block: (n, 1)."""
    two = np.ascontiguousarray(raw[:, at : at + 2])
    return two.view("<f2").astype(np.float32)


def _nibbles(packed: Bytes, out: Array) -> None:
    """Fill out (n, 32) with 0 to 15: lower halves of the 16 bytes, then the upper."""
    out[:, :16] = packed & 15
    out[:, 16:] = packed >> 4


KINDS = {
    "F32": Kind(1, 4, f32),
    "F16": Kind(1, 2, f16),
    "BF16": Kind(1, 2, bf16),
    "Q8_0": Kind(32, 34, q8_0),
    "Q4_0": Kind(32, 18, q4_0),
    "Q4_1": Kind(32, 20, q4_1),
}
