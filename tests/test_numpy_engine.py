"""`NumpyEngine` and `load`; test_engine_contract.py has what every engine promises."""

from __future__ import annotations

import numpy as np
import pytest

import tinyllm
from tinyllm.errors import (
    CacheError,
    CheckpointError,
    ContextFullError,
    TinyllmError,
    UsageError,
)
from tinyllm.formats.hf_folder import save_folder
from tinyllm.model.transformer import Model
from tinyllm.numpy_engine import NumpyEngine
from tinyllm.toy import ToyEngine

IDS = [1, 20, 30, 200, 7]


def test_a_full_forward_of_the_model_is_prefill_and_decode(lm, model):
    session = lm.session()
    prefilled = lm.prefill(session, IDS[:-1])
    decoded = lm.decode(session, IDS[-1])
    whole = model.forward(IDS)
    assert np.array_equal(prefilled, whole[-2])
    assert np.array_equal(decoded, whole[-1])
    assert np.array_equal(lm.score(lm.session(), IDS), whole)


def test_sessions_of_one_engine_are_independent(lm, model):
    a, b = lm.session(), lm.session()
    lm.prefill(a, IDS)
    lm.prefill(b, [9, 9])
    assert np.array_equal(lm.decode(a, 5), model.forward([*IDS, 5])[-1])


def test_embed_is_the_mean_state_at_length_1(lm, model):
    vector = lm.embed("abc")
    mean = model.hidden([1, *lm.tokenize("abc")]).mean(axis=0)
    assert np.allclose(vector, mean / np.linalg.norm(mean), atol=1e-6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, config, weights, tokenizer):
    folder = tmp_path_factory.mktemp("models") / "mine"
    save_folder(folder, config, weights, tokenizer, "F32")
    return folder


def test_load_takes_a_path_and_a_mode(folder, config, model):
    lm = tinyllm.load(folder)
    assert (lm.name, lm.exact, lm.config) == ("mine", True, config)
    assert repr(lm) == "NumpyEngine('mine', exact)"
    fast = tinyllm.load(str(folder), exact=False)
    assert np.allclose(fast.model.forward(IDS), model.forward(IDS), atol=1e-4)
    with pytest.raises(UsageError, match="exact must be True or False"):
        tinyllm.load(folder, "fast")


def test_a_shorter_context_ends_earlier_and_changes_no_logits(folder, model):
    lm = tinyllm.load(folder, n_ctx=5)
    session = lm.session()
    assert (lm.config.n_ctx, session.n_ctx, session.cache.k.shape[2]) == (5, 5, 5)
    assert np.array_equal(lm.prefill(session, IDS), model.forward(IDS)[-1])
    with pytest.raises(ContextFullError, match="limit of 5"):
        lm.decode(session, 1)
    with pytest.raises(ContextFullError, match="limit of 5"):
        lm.prefill(session, [*IDS, 1])
    assert tinyllm.load(folder).config.n_ctx == 40


@pytest.mark.parametrize(
    ("n_ctx", "words"),
    [(41, "made for 40"), (0, "1 or more"), (True, "whole number"), (8.0, "whole")],
)
def test_a_context_that_the_model_does_not_have_is_refused(folder, n_ctx, words):
    with pytest.raises(UsageError, match=words):
        tinyllm.load(folder, n_ctx=n_ctx)


def test_the_toy_is_loaded_by_its_name_in_either_mode():
    lm = tinyllm.load("toy", exact=False, n_ctx=30)
    assert isinstance(lm, ToyEngine)
    assert (lm.exact, lm.config.n_ctx) == (False, 30)
    with pytest.raises(TinyllmError):
        tinyllm.load("./toy")


def test_a_model_that_is_not_there_is_an_error_that_says_what_is():
    with pytest.raises(CheckpointError, match="nowhere"):
        tinyllm.load("nowhere")


def test_a_session_of_another_model_is_refused(lm, config, weights):
    fast = NumpyEngine(Model(config, weights, exact=False), lm.tokenizer)
    session = lm.session()
    lm.prefill(session, IDS)
    with pytest.raises(CacheError, match=r"another model than .*fast"):
        fast.prefill(session, [5])
    assert session.token_ids == IDS
