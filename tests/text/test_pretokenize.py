from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyllm.errors import TokenizationError
from tinyllm.text.pretokenize import split


@given(st.text(), st.sampled_from(["gpt-2", "smollm"]))
def test_the_pieces_joined_are_the_text(text, kind):
    assert "".join(split(text, kind)) == text


def test_smollm_sets_every_digit_apart():
    assert split("33333", "smollm") == ["3"] * 5
    assert split("a 12", "smollm") == ["a", " ", "1", "2"]


def test_gpt_2_keeps_a_number_whole_with_its_space():
    assert split("33333 17", "gpt-2") == ["33333", " 17"]


def test_contractions_are_case_sensitive():
    assert split("I'VE I've") == ["I", "'", "VE", " I", "'ve"]


def test_a_line_break_pair_is_cut_before_the_word():
    assert split("a\r\nb") == ["a", "\r", "\n", "b"]


def test_the_last_space_of_many_belongs_to_the_word():
    assert split("a   b") == ["a", "  ", " b"]
    assert split("a   ") == ["a", "   "]


# Engines disagree on these classes, so they are named: what is white space here is
# what Unicode calls White_Space, and a number is anything in N, not only 0 to 9.
@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("a\u00a0b", ["a", "\u00a0", "b"]),  # no-break space
        ("a\u3000b", ["a", "\u3000", "b"]),  # ideographic space
        ("a\u0085b", ["a", "\u0085", "b"]),  # next line
        ("a \x1c b", ["a", " \x1c", " b"]),  # a separator that Python calls a space
        ("a\u200bb", ["a", "\u200b", "b"]),  # zero width, and no space
        ("x²", ["x", "²"]),
        ("½٣Ⅷ", ["½", "٣", "Ⅷ"]),  # fraction, Arabic-Indic digit, Roman numeral
        ("né", ["né"]),
        ("e\u0301a", ["e", "\u0301", "a"]),  # a combining accent is no letter
    ],
)
def test_unusual_white_space_and_numbers(text, pieces):
    assert split(text, "smollm") == pieces


def test_an_unknown_pre_tokenizer_is_named():
    with pytest.raises(TokenizationError, match="'llama-9'"):
        split("a", "llama-9")
