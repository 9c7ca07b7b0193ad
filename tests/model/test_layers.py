"""Each mechanism alone, from the simplest to the subtle; expectations in float64."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tinyllm.model.layers import (
    BLOCK,
    Dense,
    attend_blocks,
    attend_rows,
    attention,
    linear,
    rms_norm,
    rope,
    rope_tables,
    swiglu,
)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def tables(config, n, heads):
    """Rows 0 to n of the rope tables, once a head: (heads, n, 2, E/2)."""
    cos, sin = rope_tables(config)
    return tuple(np.repeat(t[None, :n], heads, axis=0) for t in (cos, sin))


@pytest.mark.parametrize("exact", [True, False])
def test_linear_is_the_product_with_the_transposed_matrix(exact):
    x, w = normal(5, 7), normal(3, 7, seed=1)
    expected = x.astype(np.float64) @ w.T.astype(np.float64)
    assert np.allclose(linear(x, Dense(w, exact)), expected, atol=1e-5)
    assert np.allclose(linear(x[2], Dense(w, exact)), expected[2], atol=1e-5)


SHAPES = [(256, 128), (128, 384), (63, 172), (5, 1), (1, 9), (701, 576), (77, 9000)]


@pytest.mark.parametrize("shape", SHAPES)  # the last two are applied in blocks
def test_an_exact_row_has_the_same_bits_alone_and_among_others(shape):
    x, weight = normal(33, shape[1]), Dense(normal(*shape, seed=1))
    together = linear(x, weight)
    assert all(np.array_equal(linear(x[i], weight), together[i]) for i in range(33))


def test_a_matrix_in_another_order_or_dtype_is_stored_as_float32_rows():
    w = np.asfortranarray(normal(6, 4).astype(np.float64))
    stored = Dense(w).array
    assert stored.dtype == np.float32
    assert stored.flags.c_contiguous
    assert Dense(w).shape == (6, 4)


def test_rms_norm_divides_by_the_root_mean_square_inside_the_epsilon():
    x, weight = np.array([[3.0, 4.0]], np.float32), np.array([1.0, 10.0], np.float32)
    root = math.sqrt((9 + 16) / 2 + 7.0)  # an epsilon too large to be overlooked
    assert np.allclose(rms_norm(x, weight, 7.0), [[3 / root, 40 / root]], atol=1e-6)


def test_rms_norm_of_a_row_has_the_same_bits_alone_and_among_others():
    x, weight = normal(50, 131), normal(131, seed=1)
    together = rms_norm(x, weight, 1e-5)
    assert all(
        np.array_equal(rms_norm(x[i], weight, 1e-5), together[i]) for i in range(50)
    )


def test_position_0_is_not_turned(config):
    x = normal(3, 1, config.head_dim)
    assert np.array_equal(rope(x, *tables(config, 1, 3)), x)


def test_position_p_turns_the_first_pair_by_p_radians(config):
    two = replace(config, head_dim=2)
    x = np.zeros((1, 4, 2), np.float32)
    x[..., 0] = 1.0
    turned = rope(x, *tables(two, 4, 1))
    expected = [[math.cos(p), math.sin(p)] for p in range(4)]
    assert np.allclose(turned[0], expected, atol=1e-6)


def test_pairs_are_split_halves_not_neighbours(config):
    four = replace(config, head_dim=4, rope_theta=100.0)
    x = np.zeros((1, 2, 4), np.float32)
    x[..., 1] = 1.0  # the first of pair 1, whose other half is entry 3
    angle = 100.0 ** (-2 / 4)
    turned = rope(x, *tables(four, 2, 1))[0, 1]
    assert np.allclose(turned, [0, math.cos(angle), 0, math.sin(angle)], atol=1e-6)


def test_scores_depend_on_the_distance_of_positions_only(config):
    q, k = (np.repeat(normal(1, 1, 6, seed=s), 20, axis=1) for s in (1, 2))
    q, k = rope(q, *tables(config, 20, 1))[0], rope(k, *tables(config, 20, 1))[0]
    assert np.allclose(q[7] @ k[3], q[19] @ k[15], atol=1e-5)
    assert not np.allclose(q[7] @ k[3], q[7] @ k[4], atol=1e-3)


def test_the_only_position_is_read_whole():
    v = normal(2, 1, 6, seed=3)
    read = attention(normal(4, 6), normal(2, 1, 6, seed=1), v)
    assert np.allclose(read.reshape(2, 2, 6), v.repeat(2, axis=1), atol=1e-6)


def test_grouped_heads_read_h0_h0_h1_h1():
    v = np.stack([np.full((5, 3), 1.0), np.full((5, 3), 2.0)]).astype(np.float32)
    read = attention(normal(4, 3), normal(2, 5, 3, seed=1), v).reshape(4, 3)
    assert np.allclose(read[:, 0], [1, 1, 2, 2])


def test_attention_is_a_softmax_over_scores():
    q, k, v = normal(4, 3), normal(2, 9, 3, seed=1), normal(2, 9, 3, seed=2)
    for head in range(4):
        scores = k[head // 2].astype(np.float64) @ q[head]
        p = np.exp(scores) / np.exp(scores).sum()
        read = attention(q, k, v).reshape(4, 3)[head]
        assert np.allclose(read, p @ v[head // 2], atol=1e-6)


def test_scores_of_a_thousand_do_not_overflow():
    q = np.full((2, 4), 500.0, np.float32)
    read = attention(q, normal(1, 6, 4), normal(1, 6, 4, seed=1))
    assert np.isfinite(read).all()


@pytest.mark.parametrize("attend", [attend_rows, attend_blocks])
def test_a_row_does_not_see_the_positions_after_it(attend):
    q, k, v = normal(4, 5, 6), normal(2, 8, 6, seed=1), normal(2, 8, 6, seed=2)
    before = attend(q, k, v)
    k[:, 6:], v[:, 6:] = 9.0, 9.0  # seen by the last two of five rows only
    after = attend(q, k, v)
    assert np.allclose(before[:3], after[:3], atol=1e-6)
    assert not np.allclose(before[3], after[3], atol=1e-2)


@pytest.mark.parametrize("held", [0, 3])
@pytest.mark.parametrize("t", [2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 1])
def test_blocks_agree_with_rows(t, held):
    q = normal(4, t, 6)
    k, v = normal(2, held + t, 6, seed=1), normal(2, held + t, 6, seed=2)
    assert np.allclose(attend_blocks(q, k, v), attend_rows(q, k, v), atol=1e-5)


def test_swiglu_is_silu_of_the_first_half_times_the_second():
    gate = np.array([-300.0, -20.0, -1.0, 0.0, 0.5, 300.0])
    x = np.concatenate([gate, np.arange(1.0, 7.0)]).astype(np.float32)
    with np.errstate(over="ignore"):
        expected = gate / (1 + np.exp(-gate)) * np.arange(1.0, 7.0)
    with np.errstate(all="raise", under="ignore"):
        assert np.allclose(swiglu(x), expected, rtol=1e-6, atol=1e-5)
    assert np.array_equal(swiglu(np.stack([x, x]))[1], swiglu(x))


def test_all_results_are_float32(config):
    x = normal(3, 6)
    results = [
        linear(x, Dense(normal(2, 6))),
        rms_norm(x, normal(6), 1e-5),
        rms_norm(x[0], normal(6), 1e-5),
        *rope_tables(config),
        rope(x[:, None], *tables(config, 1, 3)),
        attention(x[:2], normal(2, 4, 6), normal(2, 4, 6)),
        attend_blocks(normal(2, 3, 6), normal(2, 4, 6), normal(2, 4, 6)),
        swiglu(x),
    ]
    assert {r.dtype for r in results} == {np.dtype(np.float32)}
