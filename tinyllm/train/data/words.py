"""The raw material of the corpus: words, names, numbers, and what is held out.

A model learns to copy only what it cannot guess, so half of all names and sentences
consist of random syllables. `held_out` decides by checksum, so that a word, a pair of
numbers or a phrasing is either for training or for evaluation, never for both.

Before: train.loop. Next: train.data.phrases.
"""

from __future__ import annotations

import random
import zlib
from itertools import product

# Long lists of words are written as prose: 300 quotation marks are hard to read.
# ruff: noqa: SIM905

FILES = """notes shopping todo diary recipe letter story plan report list garden school
budget travel music birds weather ideas poem rules menu guests prices score names
summary history draft lesson memo orders stock tasks inbox log readme trip house
""".split()
PEOPLE = (
    "Tom Lily Mia Ben Anna Max Sam Ella Leo Nora Jack Zoe Finn Ivy Otto Rosa".split()
)
THINGS = """ball kite apple book stone shell coin hat box cup egg leaf key drum boat
cake pear lamp rope seed star button card pencil""".split()
VERBS = """saw found liked lost painted wanted made carried hid took bought sold kept
moved cleaned broke fixed opened closed drew""".split()
PLACES = """the garden|the park|the kitchen|the river|the old house|the school|the
hill|the market|the forest|the sea""".replace("\n", " ").split("|")
ADJECTIVES = """big small red blue old new green warm cold bright soft heavy round
yellow quiet happy""".split()
COMMON = """the a of to and in is it you that he was for on are with as they be at one
have this from or had by hot but some what there we can out other were all your when
up use word how said each she which do their time if will way about many then them
would write like so these her long make thing see him two has look more day could go
come did my sound no most number who over know water than call first people may down
side been now find any new work part take get place made live where after back little
only round man year came show every good me give our under name very through just
form much great think say help low line before turn cause same mean differ move right
boy old too does tell sentence set three want air well also play small end put home
read hand port large spell add even land here must big high such follow act why ask
men change went light kind off need house picture try us again animal point mother
world near build self earth father head stand own page should country answer grow
study still learn plant cover food sun four thought let keep eye never last door
between city tree cross since hard start might story saw far sea draw left late run
while press close night real life few stop open seem together next white children
begin got walk example ease paper often always music those both mark book letter until
mile river car feet care second group carry took rain eat room friend began idea fish
mountain north once base hear horse cut sure watch color face wood main""".split()


def held_out(*key: object) -> bool:
    """Return whether a key is reserved for evaluation: one in eight, by checksum."""
    # not hash(): that of a text differs from run to run
    return zlib.crc32(repr(key).encode()) % 8 == 0


def random_word(rng: random.Random) -> str:
    """Return a pronounceable random word of one to three syllables."""
    syllables = (
        rng.choice("bcdfghklmnprstvw") + rng.choice("aeiou")
        for _ in range(rng.randint(1, 3))
    )
    return "".join(syllables) + rng.choice(["", "", "n", "t", "r", "s"])


def word(rng: random.Random, held: bool) -> str:
    """Return a random word from the training or the evaluation side."""
    # drawn again until it is on the right side, one try in eight if held
    while held_out(found := random_word(rng)) != held:
        pass
    return found


def number(rng: random.Random, digits: int = 5) -> int:
    """Return an integer of one to `digits` digits, each length equally often."""
    return rng.randint(0, 10 ** rng.randint(1, digits) - 1)


def numbers(rng: random.Random, held: bool, digits: int = 5) -> tuple[int, int]:
    """Return two numbers whose pair is on the training or the evaluation side.

    The second of an evaluation pair is above 1: training divides by 1 instead of by 0,
    on whichever side that pair is.
    """
    while True:
        pair = number(rng, digits), number(rng, digits)
        if held_out(pair) == held and not (held and pair[1] < 2):
            return pair


def file_name(rng: random.Random, held: bool) -> str:
    """Return a file name without its ending: half are random words, some numbered."""
    while True:
        stem = rng.choice(FILES) if rng.random() < 0.5 else word(rng, held)
        name = stem + (str(rng.randint(1, 99)) if rng.random() < 0.25 else "")
        if held_out(name) == held:
            return name


def sentence(rng: random.Random, held: bool) -> str:
    """Return a sentence: real words in a small grammar, common or random words."""
    kind = rng.random()
    if kind < 0.35:
        who = rng.choice(
            [rng.choice(PEOPLE), "the " + rng.choice(["cat", "dog", "bird"])]
        )
        what = f"{rng.choice(ADJECTIVES)} {rng.choice(THINGS)}"
        body = f"{who} {rng.choice(VERBS)} a {what} in {rng.choice(PLACES)}"
    elif kind < 0.45:
        verb = rng.choice(["costs", "is", "has number"])
        body = f"the {rng.choice(THINGS)} {verb} {number(rng)}"
    elif kind < 0.65:
        body = " ".join(rng.choice(COMMON) for _ in range(rng.randint(3, 9)))
        body = body.replace(" ", ", ", 1) if rng.random() < 0.2 else body
    else:
        body = " ".join(word(rng, held) for _ in range(rng.randint(2, 7)))
    body = body[0].upper() + body[1:] if rng.random() < 0.7 else body
    return body + rng.choice([".", ".", ".", "!", "?", ""])


def phrasings(openings: list[str], cores: list[str], held: bool) -> list[str]:
    """Return every opening with every core, of the training or the evaluation side.

    A core begins in lower case; after an empty opening it is capitalised, which gives
    other tokens, so that pair is always trained. Nearly every core is held out with one
    other opening, and can be understood from its parts.
    """
    return [
        opening + core if opening else core[0].upper() + core[1:]
        for (i, opening), (j, core) in product(enumerate(openings), enumerate(cores))
        if (opening != "" and (i + j) % len(openings) == 0) == held
    ]
