"""Small stories to continue: one hero, one thing, one trouble and its end.

`story(rng)` returns a text of five to nine sentences that agrees with itself: who the
hero is, what is wanted and where it all happens stay the same to the last line.
"""

from __future__ import annotations

import random

from tinyllm.train.words import ADJECTIVES, PEOPLE, PLACES, THINGS

# Lists of words are kept as prose.  # ruff: noqa: SIM905
BOYS = frozenset("Tom Ben Max Sam Leo Jack Finn Otto".split())
ANIMALS = "cat dog bird frog fox duck mouse rabbit".split()
FEELINGS = "happy proud glad calm brave".split()


def story(rng: random.Random) -> str:
    """A story in plain words, one paragraph."""
    name = rng.choice(PEOPLE)
    he, his, kind = ("he", "his", "boy") if name in BOYS else ("she", "her", "girl")
    friend = rng.choice(ANIMALS)
    colour, thing = rng.choice(ADJECTIVES), rng.choice(THINGS)
    place = rng.choice(PLACES)
    He = he.capitalize()
    begin = rng.choice(
        [
            f"Once upon a time there was a little {kind} named {name}.",
            f"One day a {kind} named {name} went to {place}.",
            f"There was a {kind} called {name} who had a {friend}.",
        ]
    )
    want = rng.choice(
        [
            f"{name} had a {colour} {thing} and loved it very much.",
            f"{name} wanted a {colour} {thing} more than anything.",
            f"{He} played with a {colour} {thing} every day.",
        ]
    )
    trouble = rng.choice(
        [
            f"But then the {thing} was lost in {place}.",
            f"But one morning the {thing} was gone.",
            f"But the {thing} fell down and broke.",
        ]
    )
    middle = [
        f"{name} looked for the {thing} in {place}.",
        f"{He} asked the {friend} for help.",
        f'"Do not be sad," said the {friend}. "We will find a way."',
        f"The {friend} ran to {place} and back.",
        f"{name} and the {friend} thought about it for a long time.",
        f"It was a {rng.choice(ADJECTIVES)} day and the sun was high.",
    ]
    end = rng.choice(
        [
            f"At last the {friend} found the {thing}, and {name} was {{feel}}.",
            f"In the end {name} made a new {thing}, and {he} was {{feel}}.",
            f"The {friend} gave {name} {his} {thing} back, and they were {{feel}}.",
        ]
    ).format(feel=rng.choice(FEELINGS))
    close = rng.choice(
        [
            f"{name} said thank you and they went home.",
            f"From that day on {name} and the {friend} were best friends.",
            "They played until the sun went down.",
        ]
    )
    chosen = sorted(rng.sample(range(len(middle)), rng.randint(1, 4)))
    parts = [begin, want, trouble, *(middle[i] for i in chosen), end, close]
    return " ".join(parts)
