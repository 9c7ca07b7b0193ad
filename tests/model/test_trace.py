"""A trace is the forward pass itself, seen from inside."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyllm
from tests.conftest import TINY, random_weights
from tests.slow_llama import attend, mlp, norm, slow_logits, turn
from tinyllm.errors import (
    ContextFullError,
    InferenceError,
    InvalidTokenError,
    PromptTooShortError,
)
from tinyllm.model.layers import linear, rms_norm
from tinyllm.model.trace import attention_weights, trace
from tinyllm.model.transformer import Model

IDS = [1, 200, 7, 7, 31, 258, 0, 99, 7]
MODEL = Model(TINY, random_weights(TINY))


def slow_trace(config, weights, ids):
    """(states, attention) by explicit loops in float64."""
    rows = [weights["model.embed_tokens.weight"][i].astype(np.float64) for i in ids]
    states, attention = [np.stack(rows)], []
    for n in range(config.n_layers):
        prefix = f"model.layers.{n}."
        layer = {
            name.removeprefix(prefix): array.astype(np.float64)
            for name, array in weights.items()
            if name.startswith(prefix)
        }
        attention.append(slow_attention(config, layer, rows))
        rows = attend(config, layer, rows)
        rows = [x + mlp(config, layer, x) for x in rows]
        states.append(np.stack(rows))
    return np.stack(states), np.stack(attention)


def slow_attention(config, layer, rows):
    """The weights (H, T, T) of one layer, one pair of positions at a time."""
    group, width = config.n_heads // config.n_kv_heads, config.head_dim
    normed = [norm(config, x, layer["input_layernorm.weight"]) for x in rows]
    found = np.zeros((config.n_heads, len(rows), len(rows)))
    for head in range(config.n_heads):
        at, kv_at = head * width, head // group * width
        w_q = layer["self_attn.q_proj.weight"][at : at + width]
        w_k = layer["self_attn.k_proj.weight"][kv_at : kv_at + width]
        for t in range(len(rows)):
            query = turn(config, w_q @ normed[t], t)
            keys = [turn(config, w_k @ normed[s], s) for s in range(t + 1)]
            p = np.exp([query @ key / width**0.5 for key in keys])
            found[head, t, : t + 1] = p / p.sum()
    return found


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("n", [1, 2, len(IDS)])
def test_a_trace_ends_in_the_logits_of_the_model(exact, tied, n):
    config = replace(TINY, tied_embeddings=tied)
    model = Model(config, random_weights(config, seed=3), exact)
    found = trace(model, IDS[:n]).logits
    assert np.abs(found - model.forward(IDS[:n])).max() < 1e-4
    assert found.std() > 0.5  # logits so small would agree with anything


@pytest.mark.parametrize("n_kv_heads", [1, 2, 4, 8])
def test_states_and_weights_agree_with_explicit_loops(n_kv_heads):
    config = replace(TINY, n_kv_heads=n_kv_heads)
    weights = random_weights(config, seed=5)
    found = trace(Model(config, weights), IDS)
    states, attention = slow_trace(config, weights, IDS)
    assert np.abs(found.attention - attention).max() < 1e-5
    assert np.abs(found.states - states).max() < 1e-4
    assert np.abs(found.logits - slow_logits(config, weights, IDS)).max() < 1e-4
    assert attention[..., -1, :].std() > 0.1  # an even spread would agree with much


def test_every_size_is_as_promised_and_float32():
    found = trace(MODEL, IDS)
    assert found.token_ids == tuple(IDS)
    assert found.states.shape == (TINY.n_layers + 1, len(IDS), TINY.dim)
    assert found.attention.shape == (TINY.n_layers, TINY.n_heads, len(IDS), len(IDS))
    assert found.logits.shape == (len(IDS), TINY.vocab_size)
    for array in (found.states, found.attention, found.logits):
        assert array.dtype == np.float32


def test_the_stream_begins_with_the_embedding_and_ends_before_the_last_norm():
    found = trace(MODEL, IDS)
    assert np.array_equal(found.states[0], MODEL.embedding[IDS])
    normed = rms_norm(found.states[-1], MODEL.norm, TINY.norm_eps)
    assert np.array_equal(linear(normed, MODEL.head), found.logits)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, TINY.vocab_size - 1), min_size=1, max_size=12))
def test_rows_sum_to_1_and_nobody_reads_ahead(ids):
    attention = trace(MODEL, ids).attention
    assert np.abs(attention.sum(axis=-1) - 1).max() < 1e-5
    assert np.array_equal(attention, np.tril(attention))
    assert (attention >= 0).all()


def test_what_comes_later_changes_nothing_before():
    one, two = trace(MODEL, IDS), trace(MODEL, [*IDS[:-1], 5])
    before = len(IDS) - 1
    assert np.allclose(one.states[:, :before], two.states[:, :before], atol=1e-5)
    assert np.abs(one.states[:, before] - two.states[:, before]).max() > 0.1


def test_neighbouring_query_heads_read_the_same_key_head():
    """h0 h0 h1 h1: key head 0 says nothing, so heads 0 and 1 spread evenly."""
    q = np.random.default_rng(0).standard_normal((4, 5, 6)).astype(np.float32)
    k = np.stack([np.zeros((5, 6)), 3 * np.ones((5, 6))]).astype(np.float32)
    k[1, 0] = -3
    weights = attention_weights(q, k)
    even = [abs(weights[head, 4] - 1 / 5).max() < 1e-6 for head in range(4)]
    assert even == [True, True, False, False]


def test_scores_of_a_thousand_do_not_overflow():
    q, k = (np.full((1, 3, 2), 30.0, np.float32) for _ in "qk")
    assert np.allclose(attention_weights(q, k)[0, 2], 1 / 3)


def test_the_embedded_model_is_traced_too():
    lm = tinyllm.load()
    ids = [lm.tokenizer.bos_id, *lm.tokenizer.encode("What is 4871 * 209?")]
    found = trace(lm.model, ids)
    assert np.abs(found.logits - lm.model.forward(ids)).max() < 1e-4


@pytest.mark.parametrize(
    ("ids", "error"),
    [
        ([], PromptTooShortError),
        ([259], InvalidTokenError),
        ([-1], InvalidTokenError),
        ([1] * 41, ContextFullError),
    ],
)
def test_ids_that_the_model_refuses_are_refused(ids, error):
    with pytest.raises(error):
        trace(MODEL, ids)


def test_a_trace_that_would_not_fit_in_memory_is_refused(monkeypatch, model):
    monkeypatch.setattr("tinyllm.model.trace.LARGEST", 3 * 8 * 10**2)
    assert trace(model, [5] * 10).attention.size == 3 * 8 * 10**2
    with pytest.raises(InferenceError, match="fewer ids"):
        trace(model, [5] * 11)
