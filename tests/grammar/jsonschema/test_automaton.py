from __future__ import annotations

import itertools
import re

import pytest

from tinyllm.errors import GrammarError
from tinyllm.grammar.expression import (
    NOTHING,
    Concatenation,
    Expression,
    Repetition,
    literal,
)
from tinyllm.grammar.jsonschema.automaton import DEAD, Automaton, explore, product
from tinyllm.grammar.regex import parse


def complete(automaton: Automaton) -> Automaton:
    """Return the same automaton once every state of it is made."""
    state = 0
    while state < automaton.n_states:
        automaton.moves(state)
        state += 1
    return automaton


def test_states_are_made_only_when_they_are_asked_for() -> None:
    automaton = Automaton(parse("abcdef"))
    assert automaton.n_states == 2
    assert automaton.moves(automaton.start).keys() == {ord("a")}
    assert automaton.n_states == 3
    assert complete(automaton).n_states == 8


def test_equal_sets_of_nodes_are_one_state() -> None:
    automaton = Automaton(parse("[ab]*"))
    after = automaton.moves(automaton.start)[ord("a")]
    assert after == automaton.moves(automaton.start)[ord("b")]
    assert after == automaton.moves(after)[ord("a")]


def test_a_repetition_of_nothing_still_allows_the_empty_text() -> None:
    automaton = Automaton(Repetition(NOTHING))
    assert automaton.is_final(automaton.start)
    assert automaton.moves(automaton.start) == {}


def test_nothing_leaves_the_dead_state() -> None:
    automaton = Automaton(parse("a*"))
    assert not automaton.is_final(DEAD)
    assert automaton.moves(DEAD) == {}


def test_a_repetition_counts_exactly() -> None:
    automaton = Automaton(Repetition(Repetition(literal("ab"), 1, 2), 2, 3))
    fits = [n for n in range(10) if automaton.accepts(b"ab" * n)]
    assert fits == [2, 3, 4, 5, 6]


def test_the_classic_explosion_of_sixteen_thousand_states_is_built() -> None:
    automaton = complete(Automaton(parse("[ab]*a[ab]{13}")))
    assert automaton.n_states == 2**14 + 1


def test_a_larger_explosion_is_refused_with_its_cause() -> None:
    with pytest.raises(GrammarError, match=r"the pattern needs .* 20,000 states"):
        product([parse("[ab]*a[ab]{20}")], [], "the pattern")


def test_a_tree_nested_ten_thousand_deep_does_not_overflow() -> None:
    tree: Expression = literal("a")
    for _ in range(10_000):
        tree = Concatenation((tree,))
    assert Automaton(tree).accepts(b"a")


def test_optional_repetitions_inside_each_other_are_one_repetition() -> None:
    automaton = complete(Automaton(parse("(([a-z]?){100}){100}")))
    assert automaton.n_states == 10_002
    twice = Automaton(parse("((ab){0,2}){2}"))
    assert [n for n in range(7) if twice.accepts(b"ab" * n)] == [0, 1, 2, 3, 4]


def test_states_that_hold_too_many_nodes_are_an_error_that_names_the_cause() -> None:
    automaton = Automaton(parse("(([a-z]?[0-9]?){100}){40}"))
    with pytest.raises(GrammarError, match=r"too much work.*may be empty"):
        complete(automaton)


def test_a_product_has_the_texts_of_all_trees_and_of_none_of_the_others() -> None:
    trees = [parse("[ab]*"), parse(".*b"), parse("a.*")]
    inside = Automaton(product(trees[:2], trees[2:], "test"))
    texts = ["".join(t) for n in range(5) for t in itertools.product("abé", repeat=n)]
    expected = [t for t in texts if re.fullmatch("[ab]*b", t) and t[0] != "a"]
    assert [t for t in texts if inside.accepts(t.encode())] == expected


def test_a_product_without_texts_is_empty() -> None:
    assert not product([parse("a+"), parse("b+")], [], "test").accepting
    assert product([parse("a*"), parse("b*")], [], "test").accepting


def test_states_that_lead_nowhere_are_left_out() -> None:
    machine = product([parse("a{5}b")], [parse("a*b")], "test")
    assert machine.edges == ((),)


def test_too_many_states_are_refused_with_their_cause() -> None:
    with pytest.raises(GrammarError, match="the counter needs"):
        explore(0, lambda n: {0: n + 1}, lambda n: False, "the counter")
