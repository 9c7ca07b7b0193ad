from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tinyllm.train.optimizer import AdamW, clip, learning_rate


def test_two_steps_worked_out_by_hand():
    """w 1, gradients 0.5 and -0.25, rate 0.1, betas 0.9 and 0.95, decay 0.1.

    Step 1: m 0.05, v 0.0125, corrected 0.5 and 0.25, so the step is 0.1 · 0.5 / 0.5,
    and w = 1 · 0.99 - 0.1 = 0.89. Step 2: m 0.02, v 0.015, corrected 0.105263 and
    0.153846, so the step is 0.1 · 0.105263 / 0.392232 = 0.026837, and
    w = 0.89 · 0.99 - 0.026837 = 0.854263.
    """
    weights = {"w": np.ones((1, 1), np.float32)}
    optimizer = AdamW(weights)
    optimizer.step({"w": np.full((1, 1), 0.5, np.float32)}, 0.1)
    assert_allclose(weights["w"], 0.89, rtol=1e-6)
    optimizer.step({"w": np.full((1, 1), -0.25, np.float32)}, 0.1)
    assert_allclose(weights["w"], 0.854263, rtol=1e-6)


def test_matrices_decay_and_norm_weights_do_not():
    weights = {"matrix": np.ones((2, 2), np.float32), "norm": np.ones(2, np.float32)}
    still = {name: np.zeros_like(w) for name, w in weights.items()}
    AdamW(weights, decay=0.5).step(still, 0.1)
    assert_allclose(weights["matrix"], 0.95)
    assert_allclose(weights["norm"], 1.0)


def test_the_first_step_has_the_length_of_the_rate_whatever_the_gradient():
    weights = {"w": np.zeros(3, np.float32)}
    AdamW(weights).step({"w": np.array([1e-3, 1.0, -1e3], np.float32)}, 0.01)
    assert_allclose(weights["w"], [-0.01, -0.01, 0.01], rtol=1e-4)


def test_the_weights_are_changed_in_place_and_stay_float32():
    weight = np.ones((2, 2), np.float32)
    optimizer = AdamW({"w": weight})
    optimizer.step({"w": np.ones((2, 2), np.float32)}, 0.1)
    assert (weight != 1).all()
    assert {a.dtype for a in (weight, optimizer.m["w"], optimizer.v["w"])} == {
        np.dtype(np.float32)
    }


def test_clipping_shrinks_all_gradients_together_to_the_limit():
    grads = {"a": np.array([3.0], np.float32), "b": np.array([[0.0, 4.0]], np.float32)}
    assert clip(grads, 1.0) == pytest.approx(5.0)
    assert_allclose(grads["a"], [0.6])
    assert_allclose(grads["b"], [[0.0, 0.8]])


def test_small_gradients_are_not_made_larger():
    grads = {"a": np.array([0.3, 0.4], np.float32)}
    assert clip(grads, 1.0) == pytest.approx(0.5)
    assert_allclose(grads["a"], [0.3, 0.4])


def test_the_rate_warms_up_to_the_peak_and_ends_at_a_twentieth():
    rates = [learning_rate(step, 1000, 2.0) for step in range(1000)]
    assert rates[0] == pytest.approx(0.02)
    assert max(rates) == rates[100] == rates[99] == pytest.approx(2.0)
    assert rates[550] == pytest.approx(2.0 * (0.05 + 0.95 / 2))
    assert rates[100:] == sorted(rates[100:], reverse=True)
    assert learning_rate(1000, 1000, 2.0) == pytest.approx(0.1)


def test_a_run_shorter_than_the_warm_up_has_rates_too():
    assert learning_rate(4, 5, 1.0) == pytest.approx(0.05)
    assert learning_rate(100, 100, 1.0) == pytest.approx(1.0)
