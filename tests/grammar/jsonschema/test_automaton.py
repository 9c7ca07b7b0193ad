from __future__ import annotations

import numpy as np
import pytest

from tests.toy_tokenizer import accepts
from tinyllm.errors import GrammarError
from tinyllm.grammar.expression import (
    NOTHING,
    Alternation,
    ByteSet,
    Concatenation,
    Expression,
    Repetition,
    literal,
)
from tinyllm.grammar.jsonschema.automaton import Automaton
from tinyllm.grammar.lazy import DEAD
from tinyllm.grammar.regex import parse

NO_BYTE = ByteSet(frozenset())


def test_states_are_made_only_when_they_are_asked_for() -> None:
    automaton = Automaton(parse("abcdef"))
    assert automaton.n_states == 2
    automaton.next(automaton.start, ord("a"))
    assert automaton.n_states == 3
    automaton.complete()
    assert automaton.n_states == 8


def test_equal_sets_of_nodes_are_one_state() -> None:
    automaton = Automaton(parse("[ab]*"))
    after = automaton.next(automaton.start, ord("a"))
    assert after == automaton.next(automaton.start, ord("b"))
    assert after == automaton.next(after, ord("a"))


def test_a_state_that_cannot_reach_the_end_is_dead() -> None:
    tree = Alternation((literal("ab"), Concatenation((literal("ac"), NO_BYTE))))
    automaton = Automaton(tree)
    after = automaton.next(automaton.start, ord("a"))
    assert automaton.next(after, ord("c")) == DEAD
    assert automaton.next(after, ord("b")) != DEAD


@pytest.mark.parametrize(
    "tree", [NOTHING, NO_BYTE, Concatenation((literal("a"), NOTHING))], ids=str
)
def test_an_empty_language_starts_dead(tree: Expression) -> None:
    assert Automaton(tree).start == DEAD


def test_a_repetition_of_nothing_still_allows_the_empty_text() -> None:
    automaton = Automaton(Repetition(NOTHING))
    assert automaton.accepting[automaton.start]
    assert automaton.moves(automaton.start) == {}


def test_nothing_leaves_the_dead_state() -> None:
    automaton = Automaton(parse("a*"))
    assert not automaton.accepting[DEAD]
    assert all(automaton.next(DEAD, byte) == DEAD for byte in range(256))


def test_many_steps_at_once_equal_single_steps() -> None:
    one, many = Automaton(parse("(a|b)*abb|é+")), Automaton(parse("(a|b)*abb|é+"))
    one.complete()
    many.complete()
    grid = np.indices((one.n_states, 256)).reshape(2, -1)  # (2, N)
    stepped = many.step(grid[0].astype(np.int32), grid[1].astype(np.uint8))
    expected = [one.next(s, b) for s, b in zip(*grid.tolist(), strict=True)]
    assert stepped.tolist() == expected


def test_many_steps_at_once_make_the_states_they_need() -> None:
    lazy = Automaton(parse("abc"))
    state = np.array([lazy.start], np.int32)
    for byte in b"abc":
        state = lazy.step(state, np.array([byte], np.uint8))
    assert lazy.accepting[int(state[0])]


def test_a_repetition_counts_exactly() -> None:
    automaton = Automaton(Repetition(Repetition(literal("ab"), 1, 2), 2, 3))
    fits = [n for n in range(10) if accepts(automaton, b"ab" * n)]
    assert fits == [2, 3, 4, 5, 6]


def test_the_classic_explosion_of_sixteen_thousand_states_is_built() -> None:
    automaton = Automaton(parse("[ab]*a[ab]{13}"))
    automaton.complete()
    assert automaton.n_states == 2**14 + 1


def test_a_larger_explosion_is_an_error_that_says_what_to_lower() -> None:
    automaton = Automaton(parse("[ab]*a[ab]{20}"))
    with pytest.raises(GrammarError, match=r"counted repetition.*lower the count"):
        automaton.complete()


def test_a_tree_nested_ten_thousand_deep_does_not_overflow() -> None:
    tree: Expression = literal("a")
    for _ in range(10_000):
        tree = Concatenation((tree,))
    assert accepts(Automaton(tree), b"a")


def test_optional_repetitions_inside_each_other_are_one_repetition() -> None:
    automaton = Automaton(parse("(([a-z]?){100}){100}"))
    automaton.complete()
    assert automaton.n_states == 10_002
    twice = Automaton(parse("((ab){0,2}){2}"))
    assert [n for n in range(7) if accepts(twice, b"ab" * n)] == [0, 1, 2, 3, 4]


def test_states_that_hold_too_many_nodes_are_an_error_that_names_the_cause() -> None:
    automaton = Automaton(parse("(([a-z]?[0-9]?){100}){40}"))
    with pytest.raises(GrammarError, match=r"too much work.*may be empty"):
        automaton.complete()
