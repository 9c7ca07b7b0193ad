from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from toy_tokenizer import BOS, EOS, N_SPECIAL, ToyTokenizer

from tinyllm.grammar.automaton import DEAD, Automaton
from tinyllm.grammar.regex import parse
from tinyllm.grammar.vocabulary import Vocabulary

Edges = set[tuple[int, int, int]]


def found_in(automaton: Automaton, vocabulary: Vocabulary, states: list[int]) -> Edges:
    edges = vocabulary.edges(automaton, np.array(states, np.int32))
    listed = list(zip(*(column.tolist() for column in edges), strict=True))
    assert len(listed) == len(set(listed)), "an edge was found twice"
    return set(listed)


def one_by_one(automaton: Automaton, tokenizer: ToyTokenizer, state: int) -> Edges:
    edges = set()
    for token_id, data in enumerate(tokenizer.tokens):
        after = state
        for byte in data:
            after = automaton.next(after, byte)
        if data and after != DEAD:
            edges.add((state, token_id, after))
    return edges


@given(st.lists(st.binary(min_size=1, max_size=4), max_size=12))
def test_any_vocabulary_gives_the_tokens_found_one_by_one(tokens: list[bytes]) -> None:
    tokens = [bytes(b"abc\xc3\xa9"[byte % 5] for byte in data) for data in tokens]
    tokenizer = ToyTokenizer(tokens)
    automaton = Automaton(parse("(a|bc|é)*b?"))
    automaton.complete()
    states = list(range(1, automaton.n_states))
    expected = [one_by_one(automaton, tokenizer, state) for state in states]
    found = found_in(automaton, Vocabulary(tokenizer), states)
    assert found == set().union(*expected)


def test_tokens_that_are_prefixes_of_each_other_all_appear() -> None:
    tokenizer = ToyTokenizer([b"aab", b"a", b"b", b"aa", b"ab"])
    automaton = Automaton(parse("a*"))
    found = found_in(automaton, Vocabulary(tokenizer), [automaton.start])
    assert {token for _, token, _ in found} == {N_SPECIAL + 1, N_SPECIAL + 3}


def test_two_tokens_with_the_same_bytes_are_both_legal() -> None:
    tokenizer = ToyTokenizer([b"a", b"b", b"a"])
    automaton = Automaton(parse("a"))
    found = found_in(automaton, Vocabulary(tokenizer), [automaton.start])
    assert {token for _, token, _ in found} == {N_SPECIAL, N_SPECIAL + 2}


def test_special_ids_and_silent_tokens_are_left_out_whatever_their_bytes_say() -> None:
    tokenizer = ToyTokenizer([b"a", b""])
    tokenizer.tokens[BOS] = tokenizer.tokens[EOS] = b"a"
    vocabulary = Vocabulary(tokenizer)
    automaton = Automaton(parse("a"))
    found = found_in(automaton, vocabulary, [automaton.start])
    assert {token for _, token, _ in found} == {N_SPECIAL}
    assert vocabulary.token_bytes[BOS] == b""


def test_a_vocabulary_without_tokens_has_no_edges() -> None:
    automaton = Automaton(parse("a"))
    assert found_in(automaton, Vocabulary(ToyTokenizer([])), [automaton.start]) == set()


def test_each_edge_remembers_which_of_the_states_it_came_from() -> None:
    automaton = Automaton(parse("ab"))
    first = automaton.next(automaton.start, ord("a"))
    last = automaton.next(first, ord("b"))
    vocabulary = Vocabulary(ToyTokenizer([b"b", b"a", b"ab"]))
    start = automaton.start
    assert found_in(automaton, vocabulary, [first, start]) == {
        (first, N_SPECIAL, last),
        (start, N_SPECIAL + 1, first),
        (start, N_SPECIAL + 2, last),
    }


def test_the_trie_has_one_node_for_each_prefix() -> None:
    tokens = [b"b", b"ab", b"abc", b"a", b"bd", b"abd", b"ab"]
    prefixes = {token[:end] for token in tokens for end in range(len(token) + 1)}
    assert len(Vocabulary(ToyTokenizer(tokens))._byte) == len(prefixes)
