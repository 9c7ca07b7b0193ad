from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import TINY, random_weights
from tests.slow_llama import slow_logits
from tinyllm.errors import (
    CheckpointError,
    ContextFullError,
    InferenceError,
    InvalidTokenError,
    PromptTooShortError,
)
from tinyllm.model.cache import KVCache
from tinyllm.model.transformer import Model

IDS = [1, 200, 7, 7, 31, 258, 0, 99, 7, 64, 128, 3, 2, 77, 200, 1, 45]
EXACT = Model(TINY, random_weights(TINY))


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_logits_agree_with_explicit_loops_at_every_position(config, exact, tied):
    config = replace(config, tied_embeddings=tied)
    weights = random_weights(config, seed=3)
    logits = Model(config, weights, exact).forward(IDS)
    expected = slow_logits(config, weights, IDS)
    assert expected.std() > 0.5  # logits so small would agree with anything
    assert np.abs(logits - expected).max() < 1e-4


def test_logits_are_float32_and_one_row_a_token(model, fast_model):
    for each in (model, fast_model):
        logits = each.forward(IDS)
        assert logits.dtype == np.float32
        assert logits.shape == (len(IDS), 259)
        assert each.hidden(IDS[:1]).shape == (1, 44)
        assert each.forward(IDS[:1]).shape == (1, 259)


def garbage_cache(config):
    """A cache in which every slot is NaN, which would spread if it were ever read."""
    cache = KVCache(config)
    cache.k[:], cache.v[:] = np.nan, np.nan
    return cache


@pytest.mark.parametrize("first", range(1, len(IDS)))
def test_every_split_of_a_prompt_gives_the_same_bits(model, first):
    cache = garbage_cache(model.config)
    parts = [model.forward(IDS[:first], cache), model.forward(IDS[first:], cache)]
    assert np.array_equal(np.concatenate(parts), model.forward(IDS))


def test_one_by_one_gives_the_same_bits(model):
    cache = garbage_cache(model.config)
    rows = [model.forward([i], cache) for i in IDS]
    assert np.array_equal(np.concatenate(rows), model.forward(IDS))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.lists(st.integers(0, 258), min_size=1, max_size=9), min_size=1, max_size=4
    )
)
def test_any_chunks_of_any_prompt_give_the_same_bits(chunks):
    cache = garbage_cache(TINY)
    parts = [EXACT.forward(chunk, cache) for chunk in chunks]
    whole = EXACT.forward([i for chunk in chunks for i in chunk])
    assert np.array_equal(np.concatenate(parts), whole)


def test_sizes_of_the_embedded_model_are_exact_too():
    config = replace(TINY, dim=128, hidden_dim=384, n_heads=4, head_dim=32, n_layers=2)
    model = Model(config, random_weights(config))
    cold, cache = model.forward(IDS), garbage_cache(config)
    parts = [model.forward(IDS[a:b], cache) for a, b in [(0, 1), (1, 9), (9, 17)]]
    assert np.array_equal(np.concatenate(parts), cold)


def test_fast_mode_agrees_with_exact_mode_to_rounding(model, fast_model):
    cache = garbage_cache(model.config)
    fast = [fast_model.forward(IDS[:6], cache), fast_model.forward(IDS[6:], cache)]
    assert np.abs(np.concatenate(fast) - model.forward(IDS)).max() < 1e-4


def test_one_token_is_the_same_path_in_both_modes(model, fast_model):
    caches = [KVCache(model.config) for _ in range(2)]
    for i in IDS:
        exact, fast = model.forward([i], caches[0]), fast_model.forward([i], caches[1])
        assert np.array_equal(exact, fast)


def test_a_model_does_not_follow_the_weights_it_was_made_from(config, weights):
    mine = {name: array.copy() for name, array in weights.items()}
    model = Model(config, mine)
    before = model.forward(IDS)
    for array in mine.values():
        array += 1.0
    assert np.array_equal(model.forward(IDS), before)


def test_forwarding_does_not_change_the_embeddings(model):
    before = model.embedding.copy()
    model.forward([5], KVCache(model.config))
    assert np.array_equal(model.embedding, before)


@pytest.mark.parametrize("bad", [-1, 259, 1.0, True, np.float32(1), "1", None])
def test_what_is_no_token_id_is_refused_before_anything_is_written(model, bad):
    cache = KVCache(model.config)
    cache.k[:] = 7.0
    with pytest.raises(InvalidTokenError, match=str(bad).replace(".", r"\.")):
        model.forward([5, bad], cache)
    assert cache.length == 0
    assert (cache.k == 7.0).all()


def test_numpy_integers_are_token_ids(model):
    assert np.array_equal(model.forward(np.array(IDS)), model.forward(IDS))


def test_no_ids_are_too_few(model):
    with pytest.raises(PromptTooShortError):
        model.forward([])


def test_the_last_position_works_and_the_next_names_the_limit(model):
    cache = KVCache(model.config)
    model.forward([1] * 39, cache)
    model.forward([1], cache)
    k = cache.k.copy()
    with pytest.raises(ContextFullError, match="limit of 40"):
        model.forward([1], cache)
    assert cache.length == 40
    assert np.array_equal(cache.k, k)


def test_a_prompt_beyond_the_context_is_refused_as_a_whole(model):
    with pytest.raises(ContextFullError, match="41 more"):
        model.forward([1] * 41)


def test_an_exception_in_a_layer_leaves_the_length(config, weights):
    model, cache = Model(config, weights), KVCache(config)
    expected = model.forward(IDS)
    model.forward(IDS[:5], cache)
    good = model.layers[2]
    model.layers[2] = None  # fails after two layers have been written
    with pytest.raises(AttributeError):
        model.forward(IDS[5:9], cache)
    assert cache.length == 5
    model.layers[2] = good
    assert np.array_equal(model.forward(IDS[5:], cache), expected[5:])


def test_a_cache_of_another_model_is_refused(model, config):
    cache = KVCache(replace(config, n_layers=2))
    with pytest.raises(InferenceError, match="other sizes"):
        model.forward([1], cache)


def test_a_missing_an_unknown_and_a_misshapen_weight_are_named(config, weights):
    name = "model.layers.1.self_attn.k_proj.weight"
    with pytest.raises(CheckpointError, match=f"{name} is missing"):
        Model(config, {k: v for k, v in weights.items() if k != name})
    with pytest.raises(CheckpointError, match=rf"{name}.*\(44, 12\), not \(12, 44\)"):
        Model(config, weights | {name: weights[name].T})
    bias = name.replace("weight", "bias")
    with pytest.raises(CheckpointError, match=bias):
        Model(config, weights | {bias: np.zeros(12, np.float32)})


def test_stored_rotation_frequencies_are_ignored(config, weights, model):
    stored = weights | {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(3)}
    assert np.array_equal(Model(config, stored).forward(IDS), model.forward(IDS))
