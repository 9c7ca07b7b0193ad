"""The mask widget: its bars, its words and its slider say what the choices say."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("ipywidgets", reason="the notebooks extra is not installed")
pytest.importorskip("matplotlib", reason="the notebooks extra is not installed")

from tinyllm.decode.generate import Choice
from tinyllm.text.bpe import BPE
from tinyllm.widgets import mask
from tinyllm.widgets.written import written

TOKENIZER = BPE.from_merges([])  # id 3 + b stands for byte b
A, B, SPACE, BREAK = (3 + ord(c) for c in "ab \n")


def choice(got, logits, legal=None, forced=False):
    """A choice over 259 tokens with these logits, all others far below."""
    row = np.full(TOKENIZER.vocab_size, -30.0, np.float32)
    for token_id, value in logits.items():
        row[token_id] = value
    if legal is None:
        return Choice(got, row)
    allowed = np.zeros(len(row), bool)
    allowed[list(legal)] = True
    return Choice(got, row, allowed, len(legal), forced)


STEPS = [
    choice(B, {A: 2.0, B: 0.0}, legal=[B, SPACE]),
    choice(A, {A: 2.0, B: 0.0}, legal=[A, B]),
    choice(SPACE, {A: 2.0}, legal=[SPACE], forced=True),
]


def test_an_illegal_token_keeps_its_belief_and_loses_its_chance():
    found = {bar.text: bar for bar in mask.bars(STEPS[0], TOKENIZER)}
    assert found["a"].before == pytest.approx(0.881, abs=1e-3)
    assert (found["a"].after, found["a"].legal, found["a"].note) == (
        0,
        False,
        "wanted, illegal",
    )
    assert found["b"].after == pytest.approx(1, abs=1e-6)
    assert found["b"].note == "got"


def test_a_chosen_token_is_shown_however_unlikely_it_is():
    unlikely = choice(A, {3 + i: 5.0 for i in range(20)}, legal=[A])
    assert "a" in [bar.text for bar in mask.bars(unlikely, TOKENIZER)]


def test_without_a_grammar_both_sides_are_the_same():
    for bar in mask.bars(choice(A, {A: 1.0, B: 0.5}), TOKENIZER):
        assert bar.legal
        assert bar.before == bar.after


def test_the_words_name_count_mass_and_both_tokens():
    words = mask.told(STEPS, TOKENIZER, 0)
    assert "token 1 of 3, after ''" in words
    assert "legal: 2 of 259 tokens, which held 0.12 of the probability" in words
    assert "wanted a, got b (the mask stepped in)" in words
    assert "after 'b'" in mask.told(STEPS, TOKENIZER, 1)
    assert "(the same)" in mask.told(STEPS, TOKENIZER, 1)
    assert "got ␣ (forced" in mask.told(STEPS, TOKENIZER, 2)


@pytest.mark.parametrize(
    ("token_id", "seen"), [(SPACE, "␣"), (BREAK, "⏎"), (1, "<1>"), (3 + 0xF0, r"\xf0")]
)
def test_every_token_can_be_seen(token_id, seen):
    assert written(TOKENIZER, token_id) == seen


def test_the_slider_redraws_picture_and_words():
    box = mask.explorer(STEPS, TOKENIZER)
    slider, words, picture = box.children
    first = (words.value, picture.value)
    slider.value = 2
    assert "token 2 of 3" in words.value
    assert words.value != first[0]
    assert picture.value != first[1]
    slider.value = 1
    assert (words.value, picture.value) == first


def test_text_of_the_model_is_escaped_in_the_widget():
    less = 3 + ord("<")
    box = mask.explorer([choice(less, {less: 1.0}, legal=[less])], TOKENIZER)
    assert "got &lt;" in box.children[1].value


def test_a_dollar_is_no_formula():
    dollar = 3 + ord("$")
    steps = [choice(dollar, {dollar: 1.0, dollar + 1: 0.5}, legal=[dollar])]
    assert mask.still(steps, TOKENIZER, 0).data.startswith(b"\x89PNG")


def test_the_same_choice_gives_the_same_bytes_and_its_words_as_alt_text():
    one, two = (mask.still(STEPS, TOKENIZER, 0) for _ in range(2))
    assert one.data == two.data
    assert one.alt == mask.told(STEPS, TOKENIZER, 0)
