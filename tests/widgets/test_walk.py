"""A walk writes what the loop writes, and going back and on costs only what is new."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.table_engine import table_engine
from tests.toy_tokenizer import byte_level
from tinyllm import grammar
from tinyllm.decode.generate import choose_tokens
from tinyllm.decode.sampling import Sampler
from tinyllm.errors import GrammarError, UsageError
from tinyllm.widgets.walk import CEILING, HAND, MODEL, Walk

TOKENIZER = byte_level(b"12", b"34", b'",')
NUMBERS = grammar.compile(r"(\[[0-9]{1,8}\]|\(x*\))", TOKENIZER)
PROMPT = [TOKENIZER.id_of(b"p"), TOKENIZER.id_of(b"q")]
WANTS = {b",": 5, b"12": 4, b"7": 3, b"[": 2, b"]": 1}  # the comma is never legal


def engine():
    """An engine that always wants the same, most of all a comma."""
    row = np.zeros(TOKENIZER.vocab_size, np.float32)
    for data, value in WANTS.items():
        row[TOKENIZER.id_of(data)] = value
    return table_engine(row, TOKENIZER)


def walked(budget=6, n=None):
    walk = Walk(engine(), PROMPT, NUMBERS, budget)
    walk.go_on(n)
    return walk


def text(walk):
    return TOKENIZER.text(walk.token_ids).decode()


def ids(*contents):
    return [TOKENIZER.id_of(data) for data in contents]


def test_the_model_chooses_what_the_loop_chooses():
    walk, lm = walked(), engine()
    alone = lm.session()
    logits = lm.prefill(alone, PROMPT)
    chosen = choose_tokens(lm, alone, logits, Sampler(), 6, NUMBERS)
    assert walk.token_ids == [choice.token_id for choice in chosen]
    assert text(walk) == "[12121212]"
    assert walk.session.forwarded == alone.forwarded
    assert walk.ended


def test_one_token_at_a_time_is_the_same_and_costs_the_same():
    whole, walk = walked(), walked(n=1)
    for _ in range(10):
        walk.go_on(1)
    assert walk.token_ids == whole.token_ids
    assert [step.state for step in walk.steps] == [step.state for step in whole.steps]
    assert walk.session.forwarded == whole.session.forwarded


def test_who_chose_a_token_is_kept():
    walk = walked(budget=4)
    assert text(walk) == "[1212]"
    assert [step.by for step in walk.steps] == [MODEL, MODEL, MODEL, CEILING]
    assert [step.stepped_in for step in walk.steps] == [True, True, True, False]


def test_a_hand_forwards_nothing_and_what_followed_is_gone():
    walk = walked()
    before = walk.session.forwarded
    walk.take(2, *ids(b"7"))
    assert text(walk) == "[127"
    assert walk.session.forwarded == before
    assert (walk.steps[-1].by, walk.ended) == (HAND, False)


def test_going_on_forwards_only_what_is_new():
    walk = walked()
    walk.take(2, *ids(b"7"))
    new = walk.go_on()
    assert text(walk) == "[1271212]"
    assert (new, walk.deeds[-1].forwarded) == (3, 3)  # 7 and two of the new ones
    assert walk.deeds[-1].reused == len(PROMPT) + 2


def test_undo_gives_the_steps_before_and_forwards_nothing():
    walk = walked()
    first, before = walk.steps, walk.session.forwarded
    walk.take(0, *ids(b"("))
    walk.take(0, *ids(b"["))
    walk.undo()
    assert text(walk) == "("
    walk.undo()
    assert (walk.steps, walk.ended) == (first, True)
    assert walk.session.forwarded == before
    assert not walk.can_undo
    with pytest.raises(UsageError, match="no earlier steps"):
        walk.undo()


def test_after_an_undo_what_the_other_branch_replaced_is_read_again():
    walk = walked()
    walk.take(1, *ids(b"7"))
    walk.go_on()
    walk.undo()
    walk.undo()
    walk.take(3, *ids(b"7"))
    new = walk.go_on()
    assert walk.deeds[-1].reused == len(PROMPT) + 1  # where the branches part
    assert walk.deeds[-1].forwarded == 2 + new


@pytest.mark.parametrize(
    ("step", "token", "error", "message"),
    [
        (2, b"x", GrammarError, "'x'.* is illegal"),
        (2, b'",', GrammarError, "is illegal"),
        (6, b"7", UsageError, "step is 6; expected 0 to 5"),
        (-1, b"7", UsageError, "step is -1"),
        (5, b"7", GrammarError, "is illegal"),  # eight digits stand there
    ],
)
def test_a_hand_that_would_spoil_the_text_is_refused(step, token, error, message):
    walk = walked()
    steps, deeds = walk.steps, walk.deeds
    with pytest.raises(error, match=message):
        walk.take(step, *ids(token))
    assert (walk.steps, walk.deeds) == (steps, deeds)


def test_a_hand_cannot_use_up_the_budget_before_the_text_can_end():
    walk = walked(budget=4)
    with pytest.raises(GrammarError, match="needs 1 more, and 0 are left"):
        walk.take(3, *ids(b"7"))
    walk.take(3, *ids(b"]"))
    assert walk.ended


def test_eos_is_no_step_of_the_text():
    walk = Walk(engine(), PROMPT, grammar.compile("[0-9]*", TOKENIZER), 4)
    walk.go_on()
    (eos,) = TOKENIZER.eos_ids
    with pytest.raises(GrammarError, match="ends the text"):
        walk.take(1, eos)


def test_a_text_completed_by_hand_is_over():
    walk = walked()
    walk.take(2, *ids(b"]"))
    assert walk.ended
    assert walk.go_on() == 0
    assert text(walk) == "[12]"


def test_a_budget_too_small_for_any_text_is_refused():
    with pytest.raises(GrammarError, match="shortest text"):
        walked(budget=1)


doings = st.lists(
    st.one_of(
        st.tuples(st.just("on"), st.sampled_from([None, 1, 2])),
        st.tuples(st.just("take"), st.integers(0, 7), st.integers(0, 400)),
        st.tuples(st.just("undo")),
    ),
    max_size=12,
)


@given(doings, st.integers(2, 9))
def test_whatever_is_done_every_step_is_legal_and_the_text_can_be_ended(done, budget):
    walk = walked(budget)
    for name, *arguments in done:
        if name == "on":
            walk.go_on(*arguments)
        elif name == "undo" and walk.can_undo:
            walk.undo()
        elif name == "take" and walk.steps:
            at, number = arguments[0] % len(walk.steps), arguments[1]
            state = walk.steps[at].state
            legal = np.flatnonzero(NUMBERS.mask(state))
            token_id = int(legal[number % len(legal)])
            with contextlib.suppress(GrammarError):  # it would not fit the budget
                walk.take(at, token_id)
    walk.go_on()
    state = NUMBERS.start()
    for step in walk.steps:
        assert step.state == state
        state = NUMBERS.advance(state, step.choice.token_id)
    assert NUMBERS.may_end(state)
    assert len(walk.steps) <= budget
