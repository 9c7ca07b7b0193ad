from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyllm.errors import InvalidTokenError, TokenizationError
from tinyllm.text.bpe import BPE, SPECIALS, merge, train
from tinyllm.text.pretokenize import split

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
