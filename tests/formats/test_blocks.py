"""`gguf.quants` judges: every kind of block, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tinyllm.formats.blocks import KINDS, decode

library = pytest.importorskip("gguf")
Q = library.GGMLQuantizationType
PACKED = [name for name, kind in KINDS.items() if kind.block > 1]
float32 = st.floats(-1000, 1000, width=32)
blocks = arrays(np.float32, st.tuples(st.integers(1, 5), st.just(32)), elements=float32)


def judged(kind: str, raw: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return library.quants.dequantize(raw, Q[kind]).reshape(-1)


def packed(kind: str, values: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return library.quants.quantize(values, Q[kind]).view(np.uint8)


def halves(*values: float) -> bytes:
    return np.array(values, "<f2").tobytes()


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """-0 is not 0, and a NaN is the same NaN."""
    return a.dtype == b.dtype == np.float32 and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_has_the_sizes_of_the_format(kind):
    sizes = library.constants.GGML_QUANT_SIZES[Q[kind]]
    assert (KINDS[kind].block, KINDS[kind].size) == sizes


@pytest.mark.parametrize("kind", KINDS)
@given(values=blocks)
@example(values=np.zeros((1, 32), np.float32))
@example(values=np.full((2, 32), 1e-40, np.float32))
@example(values=np.full((1, 32), -3.0, np.float32))
@example(values=np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32))
def test_what_the_library_packs_has_the_numbers_it_gives(kind, values):
    raw = packed(kind, values)
    found = decode(kind, raw)
    assert found.shape == (values.size,)
    assert np.isfinite(found).all()
    assert same_bits(found, judged(kind, raw))


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_any_bytes_are_the_numbers_that_the_library_finds(kind, data):
    size = KINDS[kind].size
    n = data.draw(st.integers(0, 4)) * 32
    raw = np.frombuffer(
        data.draw(st.binary(min_size=n * size, max_size=n * size)), "u1"
    )
    with np.errstate(all="ignore"):  # infinite scales times 0
        found = decode(kind, raw)
    expected = judged(kind, raw) if n else np.empty(0, np.float32)
    if kind in PACKED:  # the payload of a NaN that was worked out means nothing
        both = np.isnan(found) & np.isnan(expected)
        found, expected = np.where(both, 0, found), np.where(both, 0, expected)
    assert same_bits(found, expected)


@pytest.mark.parametrize("kind", PACKED)
def test_an_all_zero_block_is_zeros(kind):
    assert not decode(kind, packed(kind, np.zeros((2, 32), np.float32))).any()


@pytest.mark.parametrize("kind", PACKED)
def test_a_block_of_next_to_nothing_is_next_to_nothing(kind):
    found = decode(kind, packed(kind, np.full((1, 32), 1e-40, np.float32)))
    assert (np.abs(found) <= 1e-7).all()


def test_a_constant_block_is_exact_in_q4_1():
    constant = np.full((1, 32), 3.0, np.float32)
    assert (decode("Q4_1", packed("Q4_1", constant)) == 3).all()


def test_halves_were_rounded_away_from_zero_in_q8_0():
    values = np.zeros((1, 32), np.float32)
    values[0, :6] = [127, 0.5, 1.5, 2.5, -0.5, -1.5]
    raw = packed("Q8_0", values)
    assert raw[0, 2:8].view(np.int8).tolist() == [127, 1, 2, 3, -1, -2]
    assert decode("Q8_0", raw).tolist() == [127, 1, 2, 3, -1, -2] + [0] * 26


def test_the_lower_half_of_a_byte_comes_sixteen_numbers_before_the_upper():
    nibbles = bytes(i | (15 - i) << 4 for i in range(16))
    up, down = list(range(16)), list(range(15, -1, -1))
    found = decode("Q4_1", np.frombuffer(halves(2, 100) + nibbles, np.uint8))
    assert found.tolist() == [100 + 2 * q for q in up + down]
    found = decode("Q4_0", np.frombuffer(halves(-0.5) + nibbles, np.uint8))
    assert found.tolist() == [-0.5 * (q - 8) for q in up + down]


def test_each_block_has_constants_of_its_own():
    raw = b"".join(halves(d) + bytes([1] * 32) for d in (1, -2, 0.25))
    found = decode("Q8_0", np.frombuffer(raw, np.uint8)).reshape(3, 32)
    assert found[:, 0].tolist() == found[:, 31].tolist() == [1, -2, 0.25]


SPECIAL = {
    "NaN": (0x7FC1, 0x7FC10000),
    "a NaN that signals": (0x7F81, 0x7F810000),
    "-NaN": (0xFFC0, 0xFFC00000),
    "infinity": (0x7F80, 0x7F800000),
    "-infinity": (0xFF80, 0xFF800000),
    "-0": (0x8000, 0x80000000),
    "the least subnormal": (0x0001, 0x00010000),
    "the largest subnormal": (0x807F, 0x807F0000),
    "the largest": (0x7F7F, 0x7F7F0000),
    "1": (0x3F80, 0x3F800000),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_bf16_is_the_upper_half_of_a_float32(name):
    short, expected = SPECIAL[name]
    raw = np.array([short, 0x3F80], "<u2").view(np.uint8)
    assert decode("BF16", raw).view(np.uint32).tolist() == [expected, 0x3F800000]


def test_every_bf16_is_exact():
    every = np.arange(2**16, dtype="<u2")
    found = decode("BF16", every.view(np.uint8)).view(np.uint32)
    assert np.array_equal(found, every.astype(np.uint32) << 16)


def test_every_f16_that_is_a_number_keeps_its_value():
    every = np.arange(2**16, dtype="<u2").view("<f2")
    every = every[~np.isnan(every)]
    found = decode("F16", every.view(np.uint8))
    assert found.tolist() == every.tolist()
    assert np.array_equal(np.signbit(found), np.signbit(every))


@pytest.mark.parametrize("kind", KINDS)
def test_the_bytes_of_the_file_are_only_read(kind):
    raw = np.frombuffer(bytes(32 * KINDS[kind].size), np.uint8)
    assert not raw.flags.writeable
    found = decode(kind, raw)
    found += 1  # the numbers are the caller's
    assert not raw.any()
