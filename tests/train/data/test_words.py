from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyllm.train.data import words
from tinyllm.train.data.phrases import OPENINGS, READ
from tinyllm.train.data.words import held_out, phrasings

RNG = st.integers(0, 2**32).map(random.Random)
SIDES = pytest.mark.parametrize("held", [False, True], ids=["training", "evaluation"])


def test_about_one_in_eight_is_held_out():
    share = Counter(held_out("word", i) for i in range(8000))[True] / 8000
    assert 0.11 < share < 0.14


def test_the_side_is_the_same_on_every_machine_and_in_every_run():
    """A hash that is seeded per process, as Python's own is, would change these."""
    assert [i for i in range(24) if held_out(i)] == [1, 9, 12, 20]


@SIDES
@given(rng=RNG)
def test_words_numbers_and_names_are_of_the_side_asked_for(held, rng):
    assert held_out(words.word(rng, held)) == held
    assert held_out(words.numbers(rng, held)) == held
    assert held_out(words.file_name(rng, held)) == held


@given(rng=RNG)
def test_an_evaluation_pair_cannot_be_met_as_a_division_by_one(rng):
    """Training writes a / 0 as a / 1, so a held-out (a, 1) might have been seen."""
    assert words.numbers(rng, held=True)[1] >= 2


@given(rng=RNG, digits=st.integers(1, 6))
def test_a_number_has_at_most_the_digits_asked_for(rng, digits):
    assert 0 <= words.number(rng, digits) < 10**digits


@SIDES
@given(rng=RNG)
def test_a_sentence_is_one_line_of_plain_letters(held, rng):
    text = words.sentence(rng, held)
    assert text
    assert text == text.strip()
    assert text.isascii()
    assert text.isprintable()
    assert '"' not in text  # it is quoted in questions


def test_the_two_sides_of_phrasings_share_nothing_and_leave_nothing_out():
    train, held = (phrasings(OPENINGS, READ, side) for side in (False, True))
    assert not set(train) & set(held)
    assert len(train) + len(held) == len(OPENINGS) * len(READ)


def test_each_core_and_each_opening_but_not_their_pair_is_met_in_training():
    train = phrasings(OPENINGS, READ, held=False)
    for core in READ:
        assert any(p.endswith(core[1:]) for p in train), core
    for opening in OPENINGS:
        assert any(p.startswith(opening) for p in train), opening


def test_after_an_empty_opening_a_core_begins_with_a_capital_and_is_trained():
    found = phrasings(["", "Now "], ["go.", "sit."], held=False)
    assert set(found) == {"Go.", "Sit.", "Now go."}
    assert phrasings(["", "Now "], ["go.", "sit."], held=True) == ["Now sit."]
