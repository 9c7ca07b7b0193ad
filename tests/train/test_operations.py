"""Each backward against finite differences in float64, from fundamental to subtle."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tinyllm.model import layers
from tinyllm.model.config import Config
from tinyllm.train import operations
from tinyllm.train.operations import (
    Array,
    attend,
    attention,
    attention_backward,
    cross_entropy,
    rms_norm,
    rms_norm_backward,
    rope_angles,
    rotate,
    swiglu,
    swiglu_backward,
)

RNG = np.random.default_rng(0)
EPS = 0.7  # so large that leaving it out cannot pass
B, K, G, T, E = 3, 2, 2, 5, 4


def normal(*shape: int) -> Array:
    return RNG.normal(size=shape)


def slope(f: Callable[[], Array], x: Array, dy: Array, h: float = 1e-6) -> Array:
    """The gradient in x of (f() * dy).sum(), by moving each entry of x up and down."""
    gradient = np.empty_like(x)
    for i in np.ndindex(x.shape):
        kept = x[i]
        x[i] = kept + h
        up = (f() * dy).sum()
        x[i] = kept - h
        gradient[i] = (up - (f() * dy).sum()) / (2 * h)
        x[i] = kept
    return gradient


def close(found: Array, expected: Array) -> None:
    assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_cross_entropy_of_equal_logits_is_log_v():
    loss, dlogits = cross_entropy(np.zeros((2, 8)), np.array([3, 3]))
    assert loss == pytest.approx(np.log(8))
    close(dlogits[0], (1 / 8 - np.eye(8)[3]) / 2)


def test_cross_entropy_backward():
    logits, targets = normal(6, 5) * 3, np.array([1, 1, 0, 4, 2, 1])
    expected = slope(
        lambda: np.array(cross_entropy(logits, targets)[0]), logits, np.array(1.0)
    )
    close(cross_entropy(logits, targets)[1], expected)


def test_cross_entropy_of_a_hopeless_guess_is_finite():
    loss, _ = cross_entropy(np.array([[0.0, 500.0]], np.float32), np.array([0]))
    assert loss == 500.0


def test_swiglu_backward():
    gate, up, dh = normal(4, 3) * 2, normal(4, 3), normal(4, 3)
    h, sigmoid = swiglu(gate, up)
    dgate, dup = swiglu_backward(dh, gate, up, sigmoid)
    close(h, gate / (1 + np.exp(-gate)) * up)
    close(dgate, slope(lambda: swiglu(gate, up)[0], gate, dh))
    close(dup, slope(lambda: swiglu(gate, up)[0], up, dh))


def test_swiglu_of_a_very_negative_gate_is_zero_without_a_warning():
    h, sigmoid = swiglu(np.full((1, 2), -200, np.float32), np.ones((1, 2), np.float32))
    assert not h.any()
    assert not sigmoid.any()


def test_rms_norm_backward_with_a_large_epsilon_and_uneven_weights():
    x, weight, dy = normal(4, 6), normal(6) + 2, normal(4, 6)
    _, unit, inverse = rms_norm(x, weight, EPS)
    dx, dweight = rms_norm_backward(dy, unit, inverse, weight)
    close(dx, slope(lambda: rms_norm(x, weight, EPS)[0], x, dy))
    close(dweight, slope(lambda: rms_norm(x, weight, EPS)[0], weight, dy))


def config() -> Config:
    return Config(8, 8, 1, 2, 1, E, 8, 16, rope_theta=100.0)


def test_turning_back_undoes_a_rotation_and_position_0_is_not_turned():
    x = normal(B, T, 2, E)
    cos, sin = rope_angles(config(), T, np.dtype(float))
    turned = rotate(x, cos, sin)
    close(rotate(turned, cos, -sin), x)
    close(turned[:, 0], x[:, 0])
    assert abs(turned[:, 1:] - x[:, 1:]).max() > 0.1


def test_the_rotation_is_that_of_the_model():
    x = normal(1, T, 2, E).astype(np.float32)
    cos, sin = (t[:T, None].repeat(2, 1) for t in layers.rope_tables(config()))
    here = rotate(x, *rope_angles(config(), T, np.dtype(np.float32)))
    assert_allclose(here[0], layers.rope(x[0], cos, sin), atol=1e-6)


def test_with_one_position_only_the_value_path_is_there():
    q, k, v, dout = (
        normal(B, K, G, 1, E),
        normal(B, K, 1, E),
        normal(B, K, 1, E),
        normal(B, K, G, 1, E),
    )
    out, p = attention(q, k, v)
    close(out, np.broadcast_to(v[:, :, None], out.shape))
    dq, dk, dv = attention_backward(dout, out, p, q, k, v)
    close(dq, 0 * q)
    close(dk, 0 * k)
    close(dv, dout.sum(2))  # the heads of a group add up


def test_position_0_reads_itself_alone():
    q, k, v = normal(B, K, G, T, E), normal(B, K, T, E), normal(B, K, T, E)
    out, _ = attention(q, k, v)
    close(out[:, :, :, 0], np.broadcast_to(v[:, :, None, 0], out[:, :, :, 0].shape))


def test_what_comes_later_changes_nothing_before():
    q, k, v = normal(B, K, G, T, E), normal(B, K, T, E), normal(B, K, T, E)
    before = attention(q, k, v)[0]
    k[:, :, -1] += 10
    v[:, :, -1] += 10
    close(attention(q, k, v)[0][..., :-1, :], before[..., :-1, :])


@pytest.mark.parametrize("block", [1, 2, 5, 128])
def test_attention_backward_in_blocks_of_any_size(monkeypatch, block):
    monkeypatch.setattr(operations, "BLOCK", block)
    q, k, v = normal(B, K, G, T, E), normal(B, K, T, E), normal(B, K, T, E)
    dout = normal(B, K, G, T, E)
    out, kept = attention(q, k, v)
    whole, _ = attend(q, k, v)
    close(out, whole.reshape(out.shape))
    for found, x in zip(
        attention_backward(dout, out, kept, q, k, v), (q, k, v), strict=True
    ):
        close(found, slope(lambda: attention(q, k, v)[0], x, dout))
