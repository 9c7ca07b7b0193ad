"""`choose_tokens` on a scripted session, `stream` and `generate` on the tiny model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyllm.decode.generate import Choice, choose_tokens, generate, stream
from tinyllm.decode.sampling import Sampler
from tinyllm.errors import ContextFullError, GrammarError, UsageError

EOS, A, B, C = 0, 1, 2, 3


class Scripted:
    """A session that wants the ids of a script, one after the other, for ever."""

    def __init__(self, script, room=100):
        self.script, self.position = script, 0
        self.eos_ids, self.length, self.room = frozenset({EOS}), 3, room
        self.fed = []

    def logits(self):
        logits = np.arange(4, dtype=np.float32) / 10
        logits[self.script[self.position % len(self.script)]] = 5.0
        return logits

    def extend(self, ids):
        assert len(ids) <= self.room
        self.fed += ids
        self.room -= len(ids)
        self.position += len(ids)
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


def run(session, n, grammar=None, **settings):
    """The choices, and the reason why they ended."""
    choices = []
    steps = choose_tokens(session, session.logits(), Sampler(**settings), n, grammar)
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
    steps = choose_tokens(session, session.logits(), Sampler(), 3)
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


def test_max_new_tokens_counts_new_tokens(lm):
    prompt = "x" * 20
    result = lm.generate(prompt, max_new_tokens=15, temperature=1.0, seed=3)
    assert len(result.token_ids) == 15
    assert result.stop_reason == "length"


def test_the_prompt_follows_bos(lm, model):
    first = lm.generate("abc", max_new_tokens=1).token_ids[0]
    ids = [lm.tokenizer.bos_id, *lm.tokenizer.encode("abc")]
    assert first == int(model.forward(ids)[-1].argmax())


def test_the_same_seed_gives_the_same_text_and_another_seed_another(lm):
    def text(seed):
        return lm.generate("ab", max_new_tokens=12, temperature=1.5, seed=seed).text

    assert text(42) == text(42)
    assert text(42) != text(43)


def test_the_pieces_of_a_stream_are_the_text(lm):
    options = {"max_new_tokens": 20, "temperature": 1.0, "seed": 5}
    assert "".join(stream(lm, "ab", **options)) == generate(lm, "ab", **options).text


def test_a_full_context_ends_the_text(lm):
    result = lm.generate("x" * 35, max_new_tokens=50, temperature=1.0, seed=1)
    assert (len(result.token_ids), result.stop_reason) == (4, "context")


class Fixed:
    """An engine whose greedy text is given, one byte a token, then eos."""

    def __init__(self, tokenizer, text: bytes):
        self.tokenizer = tokenizer
        self.script = [b + 3 for b in text] + [2]
        self.length, self.room, self.eos_ids = 1, 100, frozenset({2})

    def session(self):
        self.left = list(self.script)
        return self

    def feed(self, ids):
        logits = np.zeros(259, np.float32)
        logits[self.left.pop(0)] = 1.0
        return logits

    extend = feed


def test_a_character_of_four_tokens_comes_whole(tokenizer):
    pieces = list(stream(Fixed(tokenizer, "a🦙b".encode()), ""))
    assert pieces == ["a", "🦙", "b"]


def test_a_character_cut_by_the_budget_is_replaced_at_the_end_only(tokenizer):
    result = generate(Fixed(tokenizer, "a🦙".encode()), "", max_new_tokens=3)
    assert result.text == "a\ufffd"


def test_a_stop_string_ends_the_text_before_it(tokenizer):
    engine = Fixed(tokenizer, b"The quick brown fox jumps")
    result = generate(engine, "", stop=["own fox"])
    assert (result.text, result.stop_reason) == ("The quick br", "stop")
    assert len(result.token_ids) == len("The quick brown fox")


def test_text_that_began_like_a_stop_string_is_released_at_eos(tokenizer):
    result = generate(Fixed(tokenizer, b"brown f"), "", stop=["own fox"])
    assert (result.text, result.stop_reason) == ("brown f", "eos")


def test_a_grammar_from_a_schema_makes_valid_json(lm):
    import json

    import tinyllm

    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    grammar = tinyllm.grammar.compile(schema, lm.tokenizer)
    for seed in range(5):
        result = lm.generate(
            "x", max_new_tokens=24, temperature=2.0, seed=seed, grammar=grammar
        )
        assert json.loads(result.text).keys() == {"a", "b"}


def test_a_negative_budget_is_refused(lm):
    with pytest.raises(UsageError, match="-1"):
        lm.generate("x", max_new_tokens=-1)
