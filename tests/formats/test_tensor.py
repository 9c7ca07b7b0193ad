"""Tensors in a file: float32 on demand, and nothing before."""

from __future__ import annotations

import mmap
import os
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyllm.errors import CheckpointError, ModelNotFoundError
from tinyllm.formats.tensor import Stored, mapped, to_halves, to_interleaved

NUMBERS = [0.0, -1.5, 3.0, 0.25, -0.0, 96.0]  # exact in every kind below
RAW = {
    "F32": struct.pack("<6f", *NUMBERS),
    "F16": struct.pack("<6e", *NUMBERS),
    "BF16": b"".join(struct.pack("<f", number)[2:] for number in NUMBERS),
}


def stored(kind: str, *shape: int, **more) -> Stored:
    return Stored(np.frombuffer(RAW[kind], np.uint8), kind, shape, **more)


@pytest.mark.parametrize("kind", RAW)
def test_every_kind_becomes_float32_of_the_shape_it_says(kind):
    array = np.asarray(stored(kind, 2, 3))
    assert array.dtype == np.float32
    assert array.tolist() == [NUMBERS[:3], NUMBERS[3:]]
    assert np.signbit(array[1, 1])


def test_blocks_of_quantised_numbers_become_float32():
    raw = np.frombuffer(struct.pack("<e32b", 0.5, *range(-16, 16)), np.uint8)
    array = np.asarray(Stored(raw, "Q8_0", (4, 8)))
    assert array.dtype == np.float32
    assert np.array_equal(array, np.arange(-16, 16).reshape(4, 8) / 2)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32])
def test_another_dtype_is_given_where_it_is_asked_for(dtype):
    array = np.asarray(stored("F16", 6), dtype=dtype)
    assert array.dtype == dtype
    assert np.array_equal(array, np.array(NUMBERS).astype(dtype))


@pytest.mark.parametrize("shape", [(), (1, 1, 1)])
def test_a_scalar_and_odd_shapes_are_kept(shape):
    raw = np.frombuffer(RAW["F32"][4:8], np.uint8)
    assert np.asarray(Stored(raw, "F32", shape)).shape == shape


@pytest.mark.parametrize("kind", RAW)
def test_a_tensor_of_nothing_is_an_empty_array(kind):
    array = np.asarray(Stored(np.empty(0, np.uint8), kind, (0, 5)))
    assert (array.shape, array.dtype) == ((0, 5), np.float32)


def test_interleaved_rows_come_out_as_split_halves():
    expected = to_halves(np.array(NUMBERS, np.float32).reshape(6, 1), 1)
    assert np.array_equal(np.asarray(stored("F32", 6, 1, interleaved=1)), expected)
    assert expected[:3, 0].tolist() == [0.0, 3.0, 0.0]


def test_an_array_is_the_callers_own():
    tensor = stored("F32", 6)
    np.asarray(tensor)[:] = 7
    assert np.asarray(tensor).tolist() == NUMBERS


def test_bytes_that_begin_anywhere_in_a_file_are_read(tmp_path):
    path = tmp_path / "odd"
    path.write_bytes(b"x" + RAW["F32"])
    data = mapped(path)
    assert np.asarray(Stored(data[1:], "F32", (6,))).tolist() == NUMBERS


def test_a_large_file_costs_nothing_until_it_is_looked_at(tmp_path):
    path = tmp_path / "large"
    path.touch()
    os.truncate(path, 2**28)  # zeros that take no room on the disk
    tracemalloc.start()
    tensor = Stored(mapped(path), "F32", (2**26,))
    part = np.asarray(Stored(tensor.raw[-4096:], "F32", (1024,)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert tensor.shape == (2**26,)
    assert not part.any()
    assert peak < 100_000


def test_a_mapped_file_cannot_be_changed(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    with pytest.raises(ValueError, match="read-only"):
        mapped(path)[0] = 1


def test_a_mapped_file_is_kept_open_as_long_as_a_part_of_it(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    part = mapped(path)[1:]
    path.unlink()
    assert part.tobytes() == b"bc"


def test_an_empty_file_is_no_bytes(tmp_path):
    path = tmp_path / "empty"
    path.touch()
    assert mapped(path).shape == (0,)
    assert mapped(path).dtype == np.uint8


@pytest.mark.parametrize("name", ["missing", "."])
def test_what_is_no_file_is_not_found(tmp_path, name):
    with pytest.raises(ModelNotFoundError, match="is not a file"):
        mapped(tmp_path / name)


def test_a_file_that_cannot_be_mapped_is_named(tmp_path, monkeypatch):
    def refuse(*args, **options):
        raise OSError(19, "No such device")

    path = tmp_path / "strange.bin"
    path.write_bytes(b"abc")
    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(CheckpointError, match=r"strange\.bin cannot be read: No such"):
        mapped(path)


H, K, E, D = 8, 4, 8, 10  # query heads, key heads, head width, model width
HEADS = st.integers(1, 6)
PAIRS = st.integers(1, 5)


def numbered(rows: int, width: int = 1) -> np.ndarray:
    """Row i holds i, so that the order of the rows can be read off."""
    return np.repeat(np.arange(rows, dtype=np.float32)[:, None], width, axis=1)


def order(matrix: np.ndarray) -> list[int]:
    return matrix[:, 0].astype(int).tolist()


def converter(w: np.ndarray, n_heads: int) -> np.ndarray:
    """What Hugging Face's convert_llama_weights_to_hf.py does, row by row."""
    width = len(w) // n_heads
    out = np.empty_like(w)
    for head in range(n_heads):
        for half in range(2):
            for pair in range(width // 2):
                source = w[head * width + 2 * pair + half]
                out[head * width + half * width // 2 + pair] = source
    return out


def test_a_head_of_four_rows_is_0_2_1_3():
    assert order(to_halves(numbered(4), 1)) == [0, 2, 1, 3]
    assert order(to_halves(numbered(8), 2)) == [0, 2, 1, 3, 4, 6, 5, 7]


def test_a_head_of_six_rows_tells_the_two_directions_apart():
    assert order(to_halves(numbered(6), 1)) == [0, 2, 4, 1, 3, 5]
    assert order(to_interleaved(numbered(6), 1)) == [0, 3, 1, 4, 2, 5]


@given(n_heads=HEADS, pairs=PAIRS, width=st.integers(1, 4))
def test_each_direction_undoes_the_other(n_heads, pairs, width):
    weight = numbered(2 * n_heads * pairs, width)
    assert np.array_equal(to_interleaved(to_halves(weight, n_heads), n_heads), weight)
    assert np.array_equal(to_halves(to_interleaved(weight, n_heads), n_heads), weight)


@given(n_heads=HEADS, pairs=PAIRS, width=st.integers(1, 4))
def test_the_order_is_that_of_hugging_faces_converter(n_heads, pairs, width):
    weight = numbered(2 * n_heads * pairs, width)
    assert np.array_equal(to_halves(weight, n_heads), converter(weight, n_heads))


def test_keys_turned_by_the_number_of_query_heads_are_other_keys():
    keys = numbered(K * E, D)
    assert not np.array_equal(to_halves(keys, K), to_halves(keys, H))
    assert np.array_equal(to_halves(keys, K), converter(keys, K))


def angles(position: int) -> np.ndarray:
    return position * 10000.0 ** (-np.arange(0, E, 2) / E)  # (E/2,)


def turn_interleaved(x: np.ndarray, position: int) -> np.ndarray:
    """Turn each pair of neighbours, as the paper does: complex numbers, (n, E)."""
    turned = (x[:, 0::2] + 1j * x[:, 1::2]) * np.exp(1j * angles(position))
    return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)


def turn_halves(x: np.ndarray, position: int) -> np.ndarray:
    """Turn row i with row i + E/2: x cos + rotate_half(x) sin, (n, E)."""
    both = np.tile(angles(position), 2)
    turned = np.concatenate([-x[:, E // 2 :], x[:, : E // 2]], axis=1)
    return x * np.cos(both) + turned * np.sin(both)


def scores(q, k, x, turn) -> np.ndarray:
    """Attention scores of position 7 against position 3, per query head: (H,)."""
    queries = turn((q @ x[0]).reshape(H, E), 7)
    keys = turn((k @ x[1]).reshape(K, E), 3)
    return (queries * np.repeat(keys, H // K, axis=0)).sum(axis=1)


@pytest.mark.parametrize("right", [True, False])
def test_scores_of_both_layouts_agree_and_of_a_wrong_one_do_not(right):
    random = np.random.default_rng(1)
    q = random.standard_normal((H * E, D))
    k = random.standard_normal((K * E, D))
    x = random.standard_normal((2, D))
    expected = scores(q, k, x, turn_interleaved)
    halves = to_halves(q, H), to_halves(k, K if right else H)
    found = scores(*halves, x, turn_halves)
    assert np.allclose(found, expected, atol=1e-12) == right
