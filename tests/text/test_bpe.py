from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyllm.errors import InvalidTokenError, TokenizationError
from tinyllm.text.bpe import BPE, SPECIALS, merge, merge_all, split, train

CORPUS = ["the cat and the hat that the man had", "aaaaaaaa aaaa aab", "añb añb 🦙🦙"]
TOKENIZER = BPE.from_merges(train(CORPUS * 3, 290))
DENSE = st.text(alphabet="ab", max_size=40) | st.text(alphabet="thea n", max_size=40)


def naive_merge(tokenizer: BPE, word: str) -> list[int]:
    """The specification, O(n²): find the pair of lowest rank, merge it, start again."""
    rank = {(a, b): (r, new) for r, (a, b, new) in enumerate(tokenizer.merges)}
    ids = [tokenizer.tokens.index(bytes([b])) for b in word.encode()]
    while found := [(*rank[pair], pair) for pair in pairwise(ids) if pair in rank]:
        _, new, pair = min(found)
        i = list(pairwise(ids)).index(pair)
        ids[i : i + 2] = [new]
    return ids


def naive_train(texts: list[str], n_merges: int) -> list[tuple[int, int]]:
    """The specification: count all pairs of all words again before every merge."""
    words = [[len(SPECIALS) + b for b in w.encode()] for t in texts for w in split(t)]
    merges: list[tuple[int, int]] = []
    for new in range(259, 259 + n_merges):
        counts = Counter(pair for word in words for pair in pairwise(word))
        best = min(counts, key=lambda pair: (-counts[pair], pair), default=None)
        if best is None or counts[best] < 2:
            break
        merges.append(best)
        words = [merge(word, best, new) for word in words]
    return merges


def test_merge_replaces_from_the_left_without_overlap():
    assert merge([7, 7, 7], (7, 7), 9) == [9, 7]
    assert merge([5, 6, 6, 5, 6], (5, 6), 9) == [9, 6, 9]


@given(st.lists(st.text(alphabet="abc ñ1", max_size=30), max_size=6))
def test_training_finds_the_merges_of_the_naive_count(texts):
    assert train(texts, 259 + 12) == naive_train(texts, 12)


def test_training_does_not_depend_on_the_order_of_equal_words():
    shuffled = random.Random(1).sample(CORPUS, len(CORPUS))
    assert train(shuffled * 3, 290) == train(CORPUS * 3, 290)


def test_training_stops_where_no_pair_comes_twice():
    assert train(["abc"], 1000) == []


@given(DENSE | st.text(max_size=12))
def test_encoding_gives_the_ids_of_the_naive_merge(text):
    naive = [i for word in split(text) for i in naive_merge(TOKENIZER, word)]
    assert TOKENIZER.encode(text) == naive


@given(st.text())
def test_decoding_an_encoded_text_gives_the_text(text):
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", " ", "\n\n \t", "a\r\nb", "\x00", "\u2028\u0085\u00a0 ", "🦙.cpp", "<s>"],
)
def test_whole_strings_survive(text):
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@pytest.mark.parametrize("n", range(1, 40))
def test_a_run_of_one_letter_is_merged_from_the_left(n):
    assert TOKENIZER.encode("a" * n) == naive_merge(TOKENIZER, "a" * n)


def test_a_hundred_thousand_letters_are_one_word_and_no_trouble():
    """Quadratic work would take minutes here, and the time limit of a test is five."""
    ids = TOKENIZER.encode("a" * 100_000)
    assert TOKENIZER.decode(ids) == "a" * 100_000
    longest = max(len(t) for t in TOKENIZER.tokens if set(t) == {ord("a")})
    assert Counter(ids) == {TOKENIZER.tokens.index(b"a" * longest): 100_000 // longest}


@given(st.lists(st.sampled_from([*SPECIALS, "a", " ", "\n", "<|"]), max_size=8))
def test_special_tokens_written_as_text_are_text(parts):
    ids = TOKENIZER.encode("".join(parts))
    assert not TOKENIZER.special_ids & set(ids)
    assert TOKENIZER.decode(ids) == "".join(parts)


def test_special_ids_decode_to_nothing():
    ids = [TOKENIZER.bos_id, *TOKENIZER.encode("hat"), *TOKENIZER.eos_ids]
    assert TOKENIZER.decode(ids) == "hat"
    assert {TOKENIZER.token_bytes(i) for i in TOKENIZER.special_ids} == {b""}


def test_broken_utf_8_decodes_to_replacement_characters():
    bytes_only = BPE.from_merges([])
    ids = bytes_only.encode("🦙")[:1] + bytes_only.encode("a")
    assert bytes_only.decode(ids) == "\ufffda"


def test_the_bytes_of_a_merge_are_those_of_its_parts():
    for a, b, new in TOKENIZER.merges:
        joined = TOKENIZER.token_bytes(a) + TOKENIZER.token_bytes(b)
        assert TOKENIZER.token_bytes(new) == joined


@pytest.mark.parametrize("wrong", [-1, 290, 2**40, 1.0, "a", None, True])
def test_what_is_no_id_is_refused(wrong):
    with pytest.raises(InvalidTokenError, match="expected 0 to 289"):
        TOKENIZER.token_bytes(wrong)


def test_numpy_integers_are_ids():
    ids = np.array(TOKENIZER.encode("the cat"), np.uint16)
    assert TOKENIZER.decode(ids) == "the cat"


def test_a_lone_surrogate_is_a_typed_error():
    with pytest.raises(TokenizationError, match="surrogate"):
        TOKENIZER.encode("a\ud800b")


def test_a_byte_that_the_vocabulary_cannot_spell_is_refused_not_lost():
    """SmolLM2's vocabulary is such a one: other engines drop the byte silently."""
    tokens = [t if t != b"q" else b"no q" for t in TOKENIZER.tokens]
    tokenizer = BPE(tokens, [], TOKENIZER.specials, bos_id=1, eos_ids={2})
    assert tokenizer.decode(tokenizer.encode("a ueen")) == "a ueen"
    with pytest.raises(TokenizationError, match="byte 113 of b' queen'"):
        tokenizer.encode("a queen")


def test_one_text_in_place_of_a_list_is_refused_not_read_by_letters():
    with pytest.raises(TokenizationError, match="list of texts"):
        train("hello hello", 300)
    with pytest.raises(TokenizationError, match="surrogate"):
        train(["\ud800"], 300)


@pytest.mark.parametrize("pair", [(9999, 1), (-1, 5), (5, 259)])
def test_a_merge_of_ids_that_are_not_there_yet_is_refused(pair):
    with pytest.raises(TokenizationError, match="merge 0"):
        BPE.from_merges([pair])


@pytest.mark.parametrize("text", [None, b"x", 5])
def test_what_is_no_text_cannot_be_encoded(text):
    with pytest.raises(TokenizationError, match="must be a str"):
        TOKENIZER.encode(text)


@pytest.mark.parametrize(
    "ids", [{"bos_id": 5, "eos_ids": {2}}, {"bos_id": 1, "eos_ids": {2, 9}}]
)
def test_bos_and_eos_must_be_special(ids):
    with pytest.raises(TokenizationError, match="special"):
        BPE(TOKENIZER.tokens, [], TOKENIZER.specials, **ids)


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
