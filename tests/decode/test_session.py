from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import TINY, random_weights
from tinyllm.decode.session import Session, common_prefix
from tinyllm.errors import (
    ContextFullError,
    InferenceError,
    InvalidTokenError,
    PromptTooShortError,
)
from tinyllm.model.transformer import Model

MODEL = Model(TINY, random_weights(TINY))
PROMPT = [1, 20, 30, 40, 50]


@pytest.fixture
def session(model):
    return Session(model)


def cold(model, token_ids):
    return model.forward(token_ids)[-1]


def test_feed_returns_the_logits_after_the_last_id(session, model):
    logits = session.feed(PROMPT)
    assert logits.shape == (259,)
    assert np.array_equal(logits, cold(model, PROMPT))
    assert session.token_ids == PROMPT
    assert session.length == 5


def test_the_same_prompt_twice_forwards_exactly_one_token(session, model):
    session.feed(PROMPT)
    logits = session.feed(PROMPT)
    assert (session.forwarded, session.reused, session.rewound) == (6, 4, 1)
    assert np.array_equal(logits, cold(model, PROMPT))


def test_a_longer_prompt_forwards_only_what_is_new(session, model):
    session.feed(PROMPT)
    logits = session.feed([*PROMPT, 60, 70])
    assert (session.forwarded, session.reused) == (7, 5)
    assert np.array_equal(logits, cold(model, [*PROMPT, 60, 70]))


def test_a_prefix_of_what_is_held_forwards_one_and_forgets_the_rest(session, model):
    session.feed(PROMPT)
    logits = session.feed(PROMPT[:3])
    assert (session.forwarded, session.reused) == (6, 2)
    assert np.array_equal(logits, cold(model, PROMPT[:3]))
    assert session.token_ids == PROMPT[:3]


def test_a_prompt_that_diverges_reuses_what_is_shared(session, model):
    session.feed(PROMPT)
    other = [1, 20, 99, 40, 50]
    assert np.array_equal(session.feed(other), cold(model, other))
    assert (session.forwarded, session.reused) == (8, 2)
    assert session.token_ids == other


def test_the_next_turn_forwards_only_what_follows_the_reply(session, model):
    session.feed(PROMPT)
    session.extend([60])
    session.extend([61])
    before = session.forwarded
    logits = session.feed([*PROMPT, 60, 61, 70])
    assert session.forwarded - before == 1
    assert np.array_equal(logits, cold(model, [*PROMPT, 60, 61, 70]))


def test_rewind_keeps_the_first_positions(session, model):
    session.feed(PROMPT)
    session.rewind(2)
    assert session.token_ids == PROMPT[:2]
    assert session.rewound == 3
    assert np.array_equal(session.extend([9]), cold(model, [1, 20, 9]))


def test_rewinding_beyond_what_is_held_is_refused(session):
    session.feed(PROMPT)
    for n in (6, -1):
        with pytest.raises(InferenceError):
            session.rewind(n)
    assert session.token_ids == PROMPT


def test_after_reset_three_new_tokens_make_length_three(session, model):
    session.feed(PROMPT)
    k = session.cache.k
    session.reset()
    assert session.token_ids == []
    assert np.array_equal(session.extend([7, 8, 9]), cold(model, [7, 8, 9]))
    assert session.length == 3
    assert session.cache.k is k  # nothing was allocated
    assert (session.forwarded, session.reused) == (8, 0)


def test_free_positions_are_those_of_the_context_less_the_cached(session):
    session.feed(PROMPT)
    assert session.n_free == 35


def test_score_returns_a_row_for_each_id_that_feed_would_forward(session, model):
    whole = model.forward([*PROMPT, 60, 70])
    assert np.array_equal(session.score(PROMPT), whole[:5])
    assert np.array_equal(session.score([*PROMPT, 60, 70]), whole[5:])
    assert np.array_equal(session.score([*PROMPT, 60, 70]), whole[6:])  # one, at least
    assert (session.forwarded, session.reused) == (5 + 2 + 1, 0 + 5 + 6)
    other = [1, 20, 99, 40]
    assert np.array_equal(session.score(other), model.forward(other)[2:])
    assert session.token_ids == other


def test_token_ids_is_a_copy(session):
    session.feed(PROMPT)
    session.token_ids.append(5)
    assert session.token_ids == PROMPT


def test_the_last_ids_are_those_that_are_held(session):
    session.feed(PROMPT)
    session.rewind(3)
    assert session.last(2) == [20, 30]
    assert session.last(9) == [1, 20, 30]
    assert session.last(0) == []


def test_the_last_position_of_the_context_works_and_the_next_is_refused(session, model):
    ids = [7] * model.config.n_ctx
    assert np.array_equal(session.feed(ids), cold(model, ids))
    assert session.n_free == 0
    for call in (lambda: session.extend([7]), lambda: session.feed([*ids, 7])):
        with pytest.raises(ContextFullError, match="40"):
            call()
    assert session.token_ids == ids


BAD = [[1, 20, 999], [1, -1], [1] * 41, [1, 2.5], [1, True], np.ones(3), 7, None, "ab"]
BAD += [b"ab", {3, 4}, {5: 1}]


@pytest.mark.parametrize("bad", [*BAD, []], ids=lambda bad: f"{bad!r:.20}")
def test_a_refused_prompt_leaves_the_session_as_it_was(session, bad, model):
    session.feed(PROMPT)
    for call in (session.feed, session.score, session.extend):
        with pytest.raises((InvalidTokenError, ContextFullError, PromptTooShortError)):
            call(bad)
    assert session.token_ids == PROMPT
    assert (session.forwarded, session.reused) == (5, 0)
    assert np.array_equal(session.extend([9]), cold(model, [*PROMPT, 9]))


def broken(model, error, where):
    """Make one step of a model raise; return what undoes it."""
    if where == "logits":
        model.logits = lambda hidden: (_ for _ in ()).throw(error)
        return lambda: delattr(model, "logits")
    layer, model.layers[where] = model.layers[where], None
    model._attend = lambda x, i, *rest: (
        (_ for _ in ()).throw(error)
        if i == where
        else type(model)._attend(model, x, i, *rest)
    )

    def mend():
        model.layers[where] = layer
        del model._attend

    return mend


@pytest.mark.parametrize("where", [0, 2, "logits"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("name", ["feed", "score"])
def test_a_failed_extension_is_as_if_it_had_not_been_made(
    config, weights, where, error, name
):
    model = Model(config, weights)
    session = Session(model)
    session.feed(PROMPT)
    mend = broken(model, error(), where)
    with pytest.raises(error):
        getattr(session, name)([*PROMPT, 60, 61])
    mend()
    assert session.token_ids == PROMPT
    assert (session.forwarded, session.reused) == (5, 0)
    assert np.array_equal(session.extend([62]), cold(model, [*PROMPT, 62]))


@pytest.mark.parametrize("where", [0, 2, "logits"])
@pytest.mark.parametrize("name", ["feed", "score"])
def test_a_failure_while_overwriting_leaves_the_session_empty(
    config, weights, where, name
):
    model = Model(config, weights)
    session = Session(model)
    session.feed(PROMPT)
    mend = broken(model, KeyboardInterrupt(), where)
    with pytest.raises(KeyboardInterrupt):
        getattr(session, name)([1, 20, 99, 98])
    mend()
    assert session.token_ids == []
    again = [*PROMPT, 60]
    assert np.array_equal(session.feed(again), cold(model, again))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from([1, 20, 30]), min_size=1, max_size=12),
        min_size=1,
        max_size=6,
    )
)
def test_any_history_of_prompts_gives_cold_logits(prompts):
    session = Session(MODEL)
    session.cache.k[:], session.cache.v[:] = np.nan, np.nan
    for prompt in prompts:
        assert np.array_equal(session.feed(prompt), cold(MODEL, prompt))
        assert session.token_ids == prompt
    assert session.forwarded + session.reused == sum(map(len, prompts))


def test_the_common_prefix_is_counted_by_ids():
    assert common_prefix([5, 6, 7], [5, 6, 8, 9]) == 2
    assert common_prefix([], [1]) == 0
    assert common_prefix([1, 2], [1, 2, 3]) == 2
    assert common_prefix([9, 2], [1, 2]) == 0
