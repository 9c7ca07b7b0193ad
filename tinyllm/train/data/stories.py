"""Small stories to continue: one hero, one thing, one trouble and its end.

`story(rng)` returns a text of five to nine sentences that is consistent: the hero, the
thing and the place stay the same to the last line.

Before: train.data.phrases. Next: train.tasks.
"""

from __future__ import annotations

import random

from tinyllm.train.data.words import ADJECTIVES, PEOPLE, PLACES, THINGS

# Lists of words are written as prose.  # ruff: noqa: SIM905
BOYS = frozenset("Tom Ben Max Sam Leo Jack Finn Otto".split())
ANIMALS = "cat dog bird frog fox duck mouse rabbit".split()
FEELINGS = "happy proud glad calm brave".split()

BEGIN = [
    "Once upon a time there was a little {kind} named {name}.",
    "One day a {kind} named {name} went to {place}.",
    "There was a {kind} called {name} who had a {friend}.",
]
WANT = [
    "{name} had a {colour} {thing} and loved it very much.",
    "{name} wanted a {colour} {thing} more than anything.",
    "{He} played with a {colour} {thing} every day.",
]
TROUBLE = [
    "But then the {thing} was lost in {place}.",
    "But one morning the {thing} was gone.",
    "But the {thing} fell down and broke.",
]
MIDDLE = [
    "{name} looked for the {thing} in {place}.",
    "{He} asked the {friend} for help.",
    '"Do not be sad," said the {friend}. "We will find a way."',
    "The {friend} ran to {place} and back.",
    "{name} and the {friend} thought about it for a long time.",
    "It was a {weather} day and the sun was high.",
]
END = [
    "At last the {friend} found the {thing}, and {name} was {feel}.",
    "In the end {name} made a new {thing}, and {he} was {feel}.",
    "The {friend} gave {name} {his} {thing} back, and they were {feel}.",
]
CLOSE = [
    "{name} said thank you and they went home.",
    "From that day on {name} and the {friend} were best friends.",
    "They played until the sun went down.",
]


def story(rng: random.Random) -> str:
    """Return a story in plain words, one paragraph."""
    name = rng.choice(PEOPLE)
    he, his, kind = ("he", "his", "boy") if name in BOYS else ("she", "her", "girl")
    values = {"name": name, "he": he, "his": his, "kind": kind, "He": he.capitalize()}
    values["friend"] = rng.choice(ANIMALS)
    values["colour"], values["thing"] = rng.choice(ADJECTIVES), rng.choice(THINGS)
    values["place"] = rng.choice(PLACES)
    # the order of these draws is part of the corpus
    opening = [rng.choice(part) for part in (BEGIN, WANT, TROUBLE)]
    values["weather"] = rng.choice(ADJECTIVES)
    end = rng.choice(END)
    values["feel"] = rng.choice(FEELINGS)
    close = rng.choice(CLOSE)
    chosen = sorted(rng.sample(range(len(MIDDLE)), rng.randint(1, 4)))
    parts = [*opening, *(MIDDLE[i] for i in chosen), end, close]
    return " ".join(parts).format(**values)
