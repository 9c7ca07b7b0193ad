"""The rules as a graph: distances and first bytes, by brute force on both forms."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.stack_simulator import Simulator, random_rules
from tinyllm.errors import GrammarError
from tinyllm.grammar.expression import (
    EMPTY_TEXT,
    FAR,
    NOTHING,
    Alternation,
    Call,
    Concatenation,
    Expression,
    Repetition,
    Rules,
    literal,
    optional,
)
from tinyllm.grammar.network import Network

BYTES = range(256)
SPELLED = st.sampled_from([b"abc", b"ab", b"bc"])


def a_then(*parts: Expression) -> Expression:
    return Concatenation((literal("a"), *parts))


def network(
    rules: Rules, spelled: bytes = b"abc", alone: bytes | None = None
) -> Network:
    """Or, for a rule that calls itself, a rejected example."""
    try:
        return Network(rules, spelled, spelled if alone is None else alone)
    except GrammarError:
        assume(False)
        raise


def by_relaxation(net: Network, cheap: bytes) -> list[float]:
    """The distances by going over all edges until nothing changes."""
    graph, needed = net.graph, [float("inf")] * len(net.graph.free)
    for end in net.is_end:
        needed[end] = 0
    while True:
        before = list(needed)
        for node in range(len(needed)):
            ways = [needed[to] for to in graph.free[node]]
            ways += [1 + needed[to] for s, to in graph.edges[node] if s & set(cheap)]
            ways += [
                max(call.min, 1) * needed[net.starts[call.rule]] + needed[call.to]
                for call in graph.calls[node]
            ]
            needed[node] = min([needed[node], *ways])
        if needed == before:
            return needed


@settings(max_examples=40)
@given(random_rules(), SPELLED)
def test_each_node_knows_the_least_bytes_to_the_end_of_its_rule(
    rules: Rules, spelled: bytes
) -> None:
    net = network(rules, spelled)
    expected = by_relaxation(net, spelled)
    assert [float("inf") if n >= FAR else n for n in net.needed] == expected


@settings(max_examples=40)
@given(random_rules(), SPELLED)
def test_a_rule_needs_its_shortest_text_and_begins_as_its_texts_do(
    rules: Rules, spelled: bytes
) -> None:
    net, reader = network(rules, spelled), Simulator(rules, spelled)
    assert min(net.needed[Network.ENTRY], FAR) == min(reader.shortest(rules.start), FAR)
    for name, least in reader.least.items():
        assert min(net.needed[net.starts[name]], FAR) == min(least, FAR)
        start = reader.closure([(Call(name),)] * (least < FAR))
        assert net.first[name] == reader.bytes_from(start)
    named = net.nullable & reader.least.keys()
    assert named == {name for name, n in reader.least.items() if n == 0}


@settings(max_examples=40)
@given(random_rules(), SPELLED, SPELLED)
def test_bytes_count_where_those_that_are_tokens_lead_as_far_as_all(
    rules: Rules, spelled: bytes, alone: bytes
) -> None:
    alone = bytes(set(alone) & set(spelled))
    net = network(rules, spelled, alone)
    far = [n == float("inf") for n in by_relaxation(net, spelled)]
    by_tokens = by_relaxation(net, alone)
    assert net.by_bytes == (far == [n == float("inf") for n in by_tokens])
    if net.by_bytes:
        assert [n if n < FAR else float("inf") for n in net.needed] == by_tokens
        assert net.cheap == frozenset(alone)


@settings(max_examples=40)
@given(random_rules(), SPELLED)
def test_no_edge_and_no_call_leads_to_where_no_end_can_be_reached(
    rules: Rules, spelled: bytes
) -> None:
    net = network(rules, spelled)
    for edges, calls in zip(net.edges, net.calls, strict=True):
        assert all(net.needed[to] < FAR for _, to in edges)
        assert all(allowed and allowed <= set(spelled) for allowed, _ in edges)
        for call in calls:
            assert max(net.needed[call.to], net.needed[net.starts[call.rule]]) < FAR


SELF = {
    "at once": {"P": Concatenation((Call("P"), literal("a")))},
    "as one of two": {"P": Alternation((literal("a"), a_then(Call("P")), Call("P")))},
    "over another": {"P": Call("Q"), "Q": Alternation((Call("P"), literal("a")))},
    "after what may be empty": {
        "P": Concatenation((optional(literal("a")), Call("P")))
    },
    "after an empty rule": {
        "P": Concatenation((Call("Q"), Call("P"))),
        "Q": Repetition(literal("b")),
    },
    "in a repetition": {"P": Concatenation((Repetition(Call("P")), literal("a")))},
}


@pytest.mark.parametrize("rules", SELF.values(), ids=SELF)
def test_a_rule_that_calls_itself_before_any_byte_is_refused_by_name(
    rules: dict[str, Expression],
) -> None:
    ends = {name: Alternation((body, literal("c"))) for name, body in rules.items()}
    with pytest.raises(GrammarError, match=r"calls itself before any byte.*P"):
        Network(Rules(literal("a"), ends), BYTES, BYTES)


def test_a_rule_may_call_itself_after_a_byte_or_an_unreachable_call() -> None:
    never = Concatenation((Call("P"), NOTHING))  # cannot be read, so it does no harm
    body = Alternation((a_then(optional(Call("P"))), never))
    net = Network(Rules(Call("P"), {"P": body}), BYTES, BYTES)
    assert net.first == {"P": frozenset(b"a")}


def test_an_unknown_rule_is_refused_by_name_even_where_nothing_calls_it() -> None:
    rules = Rules(literal("a"), {"P": a_then(Call("Quux"))})
    with pytest.raises(GrammarError, match="no rule 'Quux'"):
        Network(rules, BYTES, BYTES)


def test_rules_without_texts_are_far_and_those_that_call_them_too() -> None:
    rules = {
        "endless": a_then(Call("endless")),
        "nothing": NOTHING,
        "caller": Concatenation((Call("nothing"), literal("a"))),
        "empty": EMPTY_TEXT,
        "escapes": Alternation((Call("caller"), a_then(Call("empty")))),
    }
    net = Network(Rules(Call("escapes"), rules), BYTES, BYTES)
    found = {name: net.needed[net.starts[name]] for name in rules}
    assert (found["empty"], found["escapes"]) == (0, 1)
    assert min(found[name] for name in ("endless", "nothing", "caller")) >= FAR
    assert net.nullable == {"empty"}
    assert net.first["endless"] == frozenset()


def test_a_rule_that_is_too_large_is_named() -> None:
    rules = Rules(literal("a"), {"big one": literal("ab" * 60_000)})
    with pytest.raises(GrammarError, match=re.escape("the rule big one needs")):
        Network(rules, BYTES, BYTES)
