"""The gradient of the whole model against finite differences in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tinyllm.errors import UsageError
from tinyllm.model.config import Config, weight_shapes
from tinyllm.model.transformer import Model
from tinyllm.train import operations
from tinyllm.train.backward import (
    Shapes,
    Weights,
    block,
    block_backward,
    layer_weights,
    loss_and_gradients,
)

# Every size differs from every other; epsilon is so large that forgetting it shows.
CONFIG = Config(
    dim=6,
    hidden_dim=7,
    n_layers=2,
    n_heads=4,
    n_kv_heads=2,
    head_dim=4,
    vocab_size=9,
    n_ctx=8,
    rope_theta=10.0,
    norm_eps=0.3,
)
TOKENS = np.array([[1, 1, 4, 1, 8], [0, 4, 4, 2, 1], [7, 7, 7, 7, 7]])  # ids repeat
TARGETS = np.array([[1, 4, 1, 8, 3], [4, 4, 2, 1, 6], [7, 7, 7, 7, 0]])


def weights_of(config: Config, dtype: type = np.float64) -> Weights:
    rng = np.random.default_rng(0)
    return {
        name: (rng.normal(0, 0.5, shape) + (len(shape) == 1)).astype(dtype)
        for name, shape in weight_shapes(config).items()
    }


@pytest.fixture(autouse=True)
def _two_blocks_and_a_rest(monkeypatch):
    monkeypatch.setattr(operations, "BLOCK", 2)


@pytest.mark.parametrize("name", weight_shapes(CONFIG))
def test_the_gradient_of_each_weight_is_its_slope(name):
    weights = weights_of(CONFIG)
    _, grads = loss_and_gradients(weights, CONFIG, TOKENS, TARGETS)
    expected, w, h = np.empty_like(weights[name]), weights[name], 1e-5
    for i in np.ndindex(w.shape):
        kept = w[i]
        w[i] = kept + h
        up, _ = loss_and_gradients(weights, CONFIG, TOKENS, TARGETS)
        w[i] = kept - h
        down, _ = loss_and_gradients(weights, CONFIG, TOKENS, TARGETS)
        w[i] = kept
        expected[i] = (up - down) / (2 * h)
    assert abs(expected).max() > 1e-3  # a weight without influence would prove nothing
    assert_allclose(grads[name], expected, rtol=1e-5, atol=1e-9)


def test_there_is_a_gradient_for_every_weight_in_its_shape():
    _, grads = loss_and_gradients(weights_of(CONFIG), CONFIG, TOKENS, TARGETS)
    assert {name: g.shape for name, g in grads.items()} == weight_shapes(CONFIG)


def test_the_loss_is_that_of_the_model_that_runs():
    weights = weights_of(CONFIG, np.float32)
    loss, _ = loss_and_gradients(weights, CONFIG, TOKENS, TARGETS)
    model, losses = Model(CONFIG, weights), []
    for row, target in zip(TOKENS.tolist(), TARGETS.tolist(), strict=True):
        logits = model.forward(row).astype(np.float64)
        p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        losses += list(-np.log(p[np.arange(len(row)), target]))
    assert_allclose(loss, np.mean(losses), rtol=1e-5)


def test_float32_stays_float32_on_the_whole_way():
    weights = weights_of(CONFIG, np.float32)
    w, s = layer_weights(weights, 0), Shapes(*TOKENS.shape, 2, 4)
    rope = operations.rope_angles(CONFIG, TOKENS.shape[1], np.dtype(np.float32))
    x = weights["model.embed_tokens.weight"][TOKENS.ravel()]
    out, kept = block(x, w, rope, s, CONFIG.norm_eps)
    dx, grads = block_backward(out, kept, w, rope, s)
    arrays = [out, dx, *rope, *kept.p, *grads.values()]
    arrays += [a for a in kept if not isinstance(a, list)]
    arrays += loss_and_gradients(weights, CONFIG, TOKENS, TARGETS)[1].values()
    assert {a.dtype for a in arrays} == {np.dtype(np.float32)}


def test_the_weights_and_the_batch_are_left_as_they_were():
    weights, tokens = weights_of(CONFIG), TOKENS.copy()
    loss_and_gradients(weights, CONFIG, tokens, TARGETS)
    assert (tokens == TOKENS).all()
    for name, w in weights_of(CONFIG).items():
        assert (weights[name] == w).all()


def test_a_batch_is_the_mean_of_its_rows():
    weights = weights_of(CONFIG)
    whole, grads = loss_and_gradients(weights, CONFIG, TOKENS, TARGETS)
    rows = [
        loss_and_gradients(weights, CONFIG, TOKENS[i : i + 1], TARGETS[i : i + 1])
        for i in range(3)
    ]
    assert_allclose(whole, np.mean([loss for loss, _ in rows]))
    for name, g in grads.items():
        assert_allclose(g, np.mean([row[name] for _, row in rows], axis=0), atol=1e-12)


def test_an_untied_head_is_refused():
    with pytest.raises(UsageError, match="tied"):
        loss_and_gradients({}, replace(CONFIG, tied_embeddings=False), TOKENS, TARGETS)
