from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyllm.text.merging import merge_all

# Ranks with ties, a merge of merges, and "abc" without either half.
RANKS = {"aa": 1.0, "ab": 1.0, "bb": 0.5, "aab": 2.0, "abc": -3.0, "aaaa": 2.0, "bc": 9}
WORDS = st.text(alphabet="abc", max_size=24)


def found(a: str, b: str) -> tuple[float, str] | None:
    return (RANKS[a + b], a + b) if a + b in RANKS else None


def naive(symbols: list, found) -> list:
    """The specification, O(n²): merge the best pair, the leftmost, and start again."""
    parts = list(symbols)
    while pairs := [
        (pair[0], i, pair[1])
        for i, (a, b) in enumerate(pairwise(parts))
        if (pair := found(a, b)) is not None
    ]:
        _, i, merged = min(pairs)
        parts[i : i + 2] = [merged]
    return parts


@given(WORDS)
def test_texts_merge_as_the_naive_loop_says(word):
    assert merge_all(word, found) == naive(list(word), found)


@given(st.dictionaries(st.text("ab", min_size=2, max_size=6), st.integers(0, 3)), WORDS)
def test_any_ranks_give_what_the_naive_loop_gives(ranks, word):
    def any_found(a, b):
        return (ranks[a + b], a + b) if a + b in ranks else None

    assert merge_all(word, any_found) == naive(list(word), any_found)


@given(st.lists(st.integers(0, 3), max_size=24))
def test_ids_merge_as_the_naive_loop_says_even_if_two_pairs_become_one_id(ids):
    ranks = {(0, 1): (2, 4), (1, 0): (1, 5), (4, 4): (0, 6), (2, 3): (3, 4)}
    got = merge_all(ids, lambda a, b: ranks.get((a, b)))
    assert got == naive(ids, lambda a, b: ranks.get((a, b)))


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("", []),
        ("a", ["a"]),
        ("aaa", ["aa", "a"]),  # the leftmost of equals
        ("aab", ["aab"]),
        ("abb", ["a", "bb"]),  # the lowest rank, though it is further right
        ("abc", ["abc"]),
        ("cc", ["c", "c"]),
    ],
)
def test_the_lowest_rank_goes_first_and_then_the_leftmost(word, parts):
    assert merge_all(word, found) == parts


def test_the_id_0_and_the_rank_0_are_as_good_as_any():
    assert merge_all([0, 0, 0], lambda a, b: (0, 0) if a == b == 0 else None) == [0]


@pytest.mark.parametrize("word", ["a", "b", "ab", "aab", "c"])
def test_a_hundred_thousand_letters_are_no_trouble(word):
    """Quadratic work would take minutes here, and the time limit of a test is five."""
    n = 100_000 // len(word)
    parts = merge_all(word * n, found)
    assert "".join(parts) == word * n
    few = naive(list(word * 60), found)
    assert parts[:10] == few[:10]
