from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyllm.decode.stop import StopStrings
from tinyllm.errors import UsageError


def let_through(stops, pieces) -> list[str]:
    watch = StopStrings(stops)
    out = []
    for piece in pieces:
        out.append(watch.push(piece))
        if watch.stopped:
            return out
    return [*out, watch.flush()]


def test_nothing_of_a_stop_string_in_pieces_is_let_through():
    assert let_through(["DEFGHIJ"], ["DEF", "G", "HI", "J"]) == ["", "", "", ""]


def test_the_text_before_a_stop_string_is_let_through():
    out = let_through(["own fox"], ["The quick br", "own", " fox jumps"])
    assert "".join(out) == "The quick br"


def test_what_only_began_like_a_stop_string_is_released():
    assert "".join(let_through(["own fox"], ["brown", " f", "rog"])) == "brown frog"


def test_what_is_held_at_the_end_is_released():
    assert let_through(["own fox"], ["brown f"]) == ["br", "own f"]


def test_the_earliest_of_several_stop_strings_counts():
    assert let_through(["fox", "quick"], ["a quick fox"]) == ["a "]


def test_a_false_start_inside_a_stop_string_is_not_lost():
    assert "".join(let_through(["aab"], ["a", "a", "a", "b"])) == "a"


def test_half_an_observation_is_not_let_through():
    out = let_through(["\nOBSERVATION"], ["7", "\nOBSERV", "ATION: 8"])
    assert "".join(out) == "7"


def test_a_single_string_is_one_stop_string():
    assert let_through("ab", ["xab"]) == ["x"]


@pytest.mark.parametrize("stops", ["", [""], ["a", ""], [3], 3, None])
def test_an_empty_stop_string_is_refused(stops):
    with pytest.raises(UsageError):
        StopStrings(stops)


@given(
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    st.lists(st.text("abc", max_size=4), max_size=8),
)
def test_any_pieces_give_the_text_before_the_first_stop_string(stops, pieces):
    text = "".join(pieces)
    ends = [end for end in range(len(text) + 1) if text[:end].endswith(tuple(stops))]
    found = [text.find(stop) for stop in stops if stop in text]
    out = "".join(let_through(stops, pieces))
    assert text.startswith(out)
    if not found:
        assert out == text
    else:
        first = text[: ends[0]]  # as soon as one is complete, the text ends before it
        starts = [first.find(s) for s in stops if s in first]
        assert not any(stop in out for stop in stops)
        assert len(out) == min(starts)


@pytest.mark.parametrize("pieces", [["abcd"], ["abc", "d"], ["a", "b", "c", "d"]])
def test_the_stop_string_that_is_complete_first_wins_whatever_the_pieces(pieces):
    assert "".join(let_through(["abcd", "bc"], pieces)) == "a"


def test_of_two_stop_strings_complete_at_once_the_longer_wins():
    assert let_through(["bc", "abc"], ["xabc"]) == ["x"]
