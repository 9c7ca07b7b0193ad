"""`choose_tokens` on a session that follows a script, under grammars of a few texts."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyllm.decode.generate import Choice, choose_tokens
from tinyllm.decode.sampling import Sampler
from tinyllm.errors import ContextFullError, GrammarError

EOS, A, B, C = 0, 1, 2, 3


class Scripted:
    """An engine and its session: it wants the ids of a script, over and over again."""

    tokenizer = SimpleNamespace(eos_ids=frozenset({EOS}))

    def __init__(self, script, room=100):
        self.script, self.position = script, 0
        self.length, self.n_free = 3, room
        self.fed = []

    def logits(self):
        logits = np.arange(4, dtype=np.float32) / 10
        logits[self.script[self.position % len(self.script)]] = 5.0
        return logits

    def last(self, n):
        ids = [0, 0, 0, *self.fed]
        return ids[len(ids) - n :] if n else []

    def decode(self, session, token_id):
        assert session is self
        assert self.n_free
        self.fed.append(token_id)
        self.n_free -= 1
        self.position += 1
        return self.logits()


class Language:
    """A grammar that allows a given set of texts, each a tuple of ids."""

    def __init__(self, *texts):
        self.texts = texts

    def start(self):
        return ()

    def mask(self, state):
        mask = np.zeros(4, bool)
        for text in self.texts:
            if text[: len(state)] == state:
                mask[text[len(state)] if len(text) > len(state) else EOS] = True
        return mask

    def advance(self, state, token_id):
        assert self.mask(state)[token_id]
        return (*state, token_id)

    def finish(self, state):
        rest = [t[len(state) :] for t in self.texts if t[: len(state)] == state]
        return min(rest, key=lambda text: (len(text), text))


def steps_of(session, sampler, n, grammar=None):
    return choose_tokens(session, session, session.logits(), sampler, n, grammar)


def run(session, n, grammar=None, **settings):
    """The choices, and the reason why they ended."""
    choices = []
    steps = steps_of(session, Sampler(**settings), n, grammar)
    while True:
        try:
            choices.append(next(steps))
        except StopIteration as end:
            return choices, end.value


def ids(choices):
    return [choice.token_id for choice in choices]


def test_tokens_follow_the_script_and_the_last_is_not_forwarded():
    session = Scripted([A, B, C])
    choices, reason = run(session, 3)
    assert (ids(choices), reason) == ([A, B, C], "length")
    assert session.fed == [A, B]


def test_a_token_is_forwarded_when_the_next_is_asked_for():
    session = Scripted([A, B, C])
    steps = steps_of(session, Sampler(), 3)
    next(steps)
    assert session.fed == []
    next(steps)
    assert session.fed == [A]


def test_an_eos_id_ends_the_text_and_is_not_yielded():
    choices, reason = run(Scripted([A, EOS, B]), 10)
    assert (ids(choices), reason) == ([A], "eos")


def test_no_budget_gives_no_token():
    assert run(Scripted([A]), 0) == ([], "length")


def test_the_context_ends_a_text_before_its_budget():
    choices, reason = run(Scripted([A], room=4), 10)
    assert (ids(choices), reason) == ([A] * 4, "context")


def test_a_choice_without_a_grammar_has_no_mask():
    choice = run(Scripted([B]), 1)[0][0]
    assert (choice.mask, choice.legal, choice.mass_kept, choice.forced) == (
        None,
        None,
        None,
        False,
    )
    assert choice.wanted == B


def test_a_grammar_overrules_what_the_model_wants():
    choices, reason = run(Scripted([C]), 10, Language((A, B), (A, A)))
    assert (ids(choices), reason) == ([A, B], "grammar")
    assert [choice.legal for choice in choices] == [1, 2]
    assert [choice.wanted for choice in choices] == [C, C]
    assert all(choice.logits[C] == 5.0 for choice in choices)  # raw, not masked


def test_mass_kept_is_the_probability_of_all_legal_ids():
    logits = np.log(np.array([0.1, 0.2, 0.3, 0.4], np.float32))
    mask = np.array([False, True, False, True])
    assert Choice(A, logits, mask, 2).mass_kept == pytest.approx(0.6, abs=1e-6)


def test_a_complete_text_ends_without_forwarding_or_sampling():
    session = Scripted([A])
    run(session, 10, Language((A, B)))
    assert session.fed == [A]


def test_a_text_that_may_end_ends_where_the_model_wants_it_to():
    longer = Language((A,), (A, B))
    assert run(Scripted([A, EOS]), 10, longer)[1] == "eos"
    assert ids(run(Scripted([A, B]), 10, longer)[0]) == [A, B]


def test_the_grammar_writes_the_end_in_time():
    quoted = Language(*[(A, *[B] * n, C, A) for n in range(20)])
    choices, reason = run(Scripted([A, B, B, B, B, B, B]), 6, quoted)
    assert ids(choices) == [A, B, B, B, C, A]
    assert [c.forced for c in choices] == [False] * 4 + [True] * 2
    assert reason == "grammar"


def test_a_budget_that_just_fits_forces_nothing():
    choices, _ = run(Scripted([A, B, C, A]), 4, Language((A, B, C, A), (A, C)))
    assert ids(choices) == [A, B, C, A]
    assert not any(c.forced for c in choices)


def test_a_complete_text_that_could_go_on_stops_at_the_budget():
    digits = Language(*[(A,) * n for n in range(1, 9)])
    choices, reason = run(Scripted([A]), 3, digits)
    assert (ids(choices), reason) == ([A] * 3, "length")
    assert not any(c.forced for c in choices)


def test_the_next_step_may_be_complete_where_this_one_is_and_the_budget_too_short():
    language = Language((A,), (A, B, C))  # after A: complete, but B would need C
    choices, reason = run(Scripted([A, B, C]), 2, language)
    assert (ids(choices), reason) == ([A], "length")


def test_a_budget_below_the_shortest_text_is_an_error_that_says_so():
    with pytest.raises(GrammarError, match=r"has 3 tokens.*max_new_tokens is 2"):
        run(Scripted([A]), 2, Language((A, B, C)))
    with pytest.raises(ContextFullError, match=r"only 2 positions are left of 5"):
        run(Scripted([A], room=2), 10, Language((A, B, C)))


@settings(max_examples=200, deadline=None)
@given(
    texts=st.lists(
        st.lists(st.sampled_from([A, B, C]), min_size=1, max_size=6).map(tuple),
        min_size=1,
        max_size=6,
    ),
    script=st.lists(st.sampled_from([EOS, A, B, C]), min_size=1, max_size=6),
    budget=st.integers(1, 8),
    temperature=st.sampled_from([0.0, 3.0]),
)
def test_within_any_budget_the_text_is_complete(texts, script, budget, temperature):
    language = Language(*texts)
    if min(map(len, texts)) > budget:
        return
    choices, _ = run(Scripted(script), budget, language, temperature=temperature)
    assert tuple(ids(choices)) in texts
    assert len(choices) <= budget


def test_the_probability_of_a_choice_is_that_of_the_model_alone():
    logits = np.log(np.array([0.1, 0.2, 0.3, 0.4], np.float32))
    choice = Choice(B, logits, np.array([False, False, True, False]), 1)
    assert choice.probability == pytest.approx(0.3, abs=1e-6)


def test_a_choice_is_shown_without_its_arrays():
    shown = repr(Choice(A, np.zeros(4, np.float32), np.ones(4, bool), 4))
    assert shown == "Choice(token_id=1, legal=4, forced=False)"


class DeadEnd(Language):
    """A language in which nothing is legal after the first token."""

    def mask(self, state):
        return super().mask(state) & (len(state) == 0)


def test_a_state_in_which_nothing_is_legal_is_an_error():
    for budget in (1, 5):
        with pytest.raises(GrammarError, match=r"state \(1,\).*no token is legal"):
            run(Scripted([A]), budget, DeadEnd((A,)))


def test_a_grammar_may_say_itself_that_a_text_without_eos_is_done():
    class Done(DeadEnd):
        def is_done(self, state):
            return len(state) == 1

    choices, reason = run(Scripted([A]), 5, Done((A,)))
    assert (ids(choices), reason) == ([A], "grammar")


def test_the_penalty_looks_at_what_the_session_holds_each_time():
    """The script wants id 3 with 5.0 for ever; 2 has 0.2 and 1 has 0.1."""

    def chosen(penalty):
        session = Scripted([3])
        sampler = Sampler(repetition_penalty=penalty)
        return [choice.token_id for choice in steps_of(session, sampler, 3)]

    assert chosen(20.0) == [3, 3, 3]  # 0.25 is still the largest
    assert chosen(60.0) == [3, 2, 1]


def test_the_mask_stepped_in_only_where_it_forbade_the_best_token():
    logits = np.array([0, 1, 5, 2], np.float32)  # the model wants B
    forbidden, allowed = np.array([1, 1, 0, 1], bool), np.ones(4, bool)
    assert Choice(C, logits, forbidden, 3).stepped_in
    assert not Choice(B, logits, allowed, 4).stepped_in
    assert not Choice(C, logits, allowed, 4).stepped_in  # drawn by chance
    assert not Choice(C, logits, forbidden, 3, forced=True).stepped_in
    assert not Choice(B, logits).stepped_in
