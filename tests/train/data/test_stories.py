from __future__ import annotations

import random
import re

from hypothesis import given
from hypothesis import strategies as st

from tests.trained_tokenizer import tokenizer
from tinyllm.train.data.stories import ANIMALS, BOYS, story
from tinyllm.train.data.words import PEOPLE, THINGS

RNG = st.integers(0, 2**32).map(random.Random)


def test_every_boy_is_among_the_people():
    assert set(PEOPLE) > BOYS


@given(RNG)
def test_a_story_has_one_hero_one_thing_and_one_friend(rng):
    words = re.findall(r"\w+", story(rng))
    assert len({w for w in words if w in PEOPLE}) == 1
    assert len({w for w in words if w in ANIMALS}) <= 1
    assert len({w for w in words if w in THINGS}) == 1


@given(RNG)
def test_a_story_says_he_of_boys_and_she_of_girls_alone(rng):
    words = set(re.findall(r"\w+", story(rng).lower()))
    boy = any(name.lower() in words for name in BOYS)
    wrong = {"she", "her", "girl"} if boy else {"he", "his", "boy"}
    assert not words & wrong


@given(RNG)
def test_a_story_is_a_paragraph_of_six_to_nine_sentences(rng):
    text = story(rng)
    assert "\n" not in text
    assert "{" not in text
    assert 6 <= len(re.findall(r'[.!?]"?(?= |$)', text)) <= 10


def test_a_story_fits_the_context_with_bos_and_eos():
    rng, encode = random.Random(3), tokenizer().encode
    assert max(len(encode(story(rng))) for _ in range(500)) + 2 <= 512


def test_the_same_seed_tells_the_same_story():
    assert story(random.Random(5)) == story(random.Random(5)) != story(random.Random(6))
