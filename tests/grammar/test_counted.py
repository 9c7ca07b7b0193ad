"""Counted repetitions: a counter in the state says what copies would say."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.grammar.test_pushdown import machine_of, pairs
from tests.stack_simulator import LETTERS, Simulator, goes_on_into_what_follows
from tinyllm.grammar import network
from tinyllm.grammar.expression import (
    EMPTY_TEXT,
    Alternation,
    Call,
    Concatenation,
    Expression,
    Repetition,
    Rules,
    literal,
)
from tinyllm.grammar.pushdown import Pushdown

BOUNDS = st.sampled_from([(0, 2), (1, 2), (2, 2), (2, 4), (3, 3), (2, None), (0, 3)])


def counted(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    """Repetitions, many of a body whose last or first byte shows where it ends."""
    ends = [lambda tree: tree, lambda tree: Concatenation((tree, literal("c")))]
    ends.append(lambda tree: Concatenation((literal("c"), tree)))
    return st.builds(
        lambda tree, bounds, end: Repetition(end(tree), *bounds),
        inner,
        BOUNDS,
        st.sampled_from(ends),
    )


def trees(names: str) -> st.SearchStrategy[Expression]:
    """Small trees with counted parts that may call these rules."""
    leaves: st.SearchStrategy[Expression] = LETTERS | st.just(EMPTY_TEXT)
    if names:
        leaves |= st.sampled_from(names).map(Call)

    def larger(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        parts = st.lists(inner, min_size=2, max_size=3).map(tuple)
        return counted(inner) | parts.map(Concatenation) | parts.map(Alternation)

    return st.recursive(leaves, larger, max_leaves=4)


@st.composite
def counted_rules(draw: st.DrawFn) -> Rules:
    """A tree with a counted part; sometimes it calls a rule that has one, too."""
    names = "P" * draw(st.sampled_from([0, 0, 0, 1]))
    rules: dict[str, Expression] = {}
    for name in names:
        tree, before, behind = draw(trees(names)), draw(LETTERS), draw(LETTERS)
        rules[name] = Concatenation((before, tree, behind))
        rules[name] = Alternation((rules[name], draw(LETTERS)))
    parts = draw(trees(names)), draw(counted(trees(names))), draw(trees(names))
    return Rules(Concatenation(parts[draw(st.integers(0, 1)) :]), rules)


def counts_of(machine: Pushdown) -> int:
    """Return how many repetitions the machine counts instead of copying them."""
    return sum(
        isinstance(call.rule, int) for calls in machine.network.calls for call in calls
    )


def counting_machine(rules: Rules) -> Pushdown:
    """Return a machine that counts even small repetitions, wherever it can."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "MAX_COPIED", 0)
        return machine_of(rules)


@settings(max_examples=80)
@given(counted_rules())
def test_texts_are_read_as_by_a_set_of_stacks(rules: Rules) -> None:
    machine, reader = counting_machine(rules), Simulator(rules)
    assume(counts_of(machine) and not goes_on_into_what_follows(rules, longest=7))
    assert bool(machine.start.dfa.positions) == bool(reader.start)
    for (state, stacks), text in pairs(machine, reader, 7).items():
        assert machine.legal_bytes(state) == reader.bytes_from(stacks), text
        assert machine.may_end(state) == (() in stacks), text
        left = min(sum(map(reader.shortest, stack)) for stack in stacks)
        assert machine.least(state) == left, text
        rest = machine.rest(state)
        assert len(rest) == left
        assert () in reader.after(text + rest)
