"""Split halves and interleaved pairs: the same numbers in another order of rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyllm.formats.rope_layout import to_halves, to_interleaved

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
