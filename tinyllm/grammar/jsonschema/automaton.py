"""Deterministic automata: of a tree without calls, from a step function, as a product.

Public: Automaton, Machine, explore, product, DEAD, MAX_STATES.

The subset construction (Rabin and Scott, 1959) turns sets of nodes of Thompson's graph
(network.py) into the states of an Automaton, each made only when it is asked for. What
is worked out with such automata becomes a Machine, all states of it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tinyllm.errors import GrammarError
from tinyllm.grammar.expression import Edge, Expression, Graph, graph_of

DEAD = 0  # the state of the empty set of nodes, which nothing leaves
MAX_STATES = 20_000  # of a machine
MAX_WORK = 4_000_000  # nodes and bytes looked at while the states of one tree are made
State = TypeVar("State", bound=Hashable)


class Automaton:
    """A deterministic automaton whose states are ints, made when first asked for.

    GrammarError where there are too many nodes in its states.
    """

    def __init__(self, expression: Expression) -> None:
        self._graph = graph_of(expression)
        self._ids: dict[frozenset[int], int] = {}
        self._sets: list[frozenset[int]] = []
        self._moves: dict[int, dict[int, int]] = {}
        self._work = 0
        self._state(())
        self.start = self._state((0,))

    @property
    def n_states(self) -> int:
        """Return the number of states made so far, DEAD among them."""
        return len(self._sets)

    def moves(self, state: int) -> dict[int, int]:
        """Return the state after each legal byte."""
        if state not in self._moves:
            targets: dict[int, list[int]] = {}
            for node in self._sets[state]:
                for allowed, target in self._graph.edges[node]:
                    self._count(len(allowed))
                    for byte in allowed:
                        targets.setdefault(byte, []).append(target)
            made = {nodes: self._state(nodes) for nodes in map(tuple, targets.values())}
            self._moves[state] = {b: made[tuple(ns)] for b, ns in targets.items()}
        return self._moves[state]

    def is_final(self, state: int) -> bool:
        """Return whether a text may end in a state."""
        return 1 in self._sets[state]

    def accepts(self, data: Iterable[int]) -> bool:
        """Return whether these bytes are a whole text."""
        state = self.start
        for byte in data:
            state = self.moves(state).get(byte, DEAD)
        return self.is_final(state)

    def _state(self, nodes: Iterable[int]) -> int:
        """Return the state for some nodes and all that free edges reach from them."""
        seen = set(nodes)
        work = list(seen)
        while work:
            new = set(self._graph.free[work.pop()]) - seen
            seen |= new
            work += new
        self._count(len(seen))
        # Only these tell two sets apart: what can be read next, and may the text end.
        key = frozenset(n for n in seen if n == 1 or self._graph.edges[n])
        if key not in self._ids:
            self._ids[key] = len(self._sets)
            self._sets.append(key)
        return self._ids[key]

    def _count(self, work: int) -> None:
        self._work += work
        if self._work > MAX_WORK:
            raise GrammarError(
                "the automaton is too much work: its states have too many nodes, most "
                "often a counted repetition of what may be empty, as in "
                "([a-z]?[0-9]?){1000}; lower the count or let the body not be empty"
            )


@dataclass(frozen=True)
class Machine:
    """A deterministic automaton as a part of a tree: state 0 is its start.

    `edges[state]` are its moves, whose byte sets do not overlap.
    """

    edges: tuple[tuple[Edge, ...], ...]
    accepting: frozenset[int]

    def add_to(self, graph: Graph, source: int, target: int) -> None:
        """Add a node for each state between two nodes of a graph."""
        nodes = [graph.node() for _ in self.edges]
        graph.free[source].append(nodes[0])
        for state, edges in enumerate(self.edges):
            graph.edges[nodes[state]] += [(allowed, nodes[to]) for allowed, to in edges]
            if state in self.accepting:
                graph.free[nodes[state]].append(target)


def explore(
    start: State,
    moves: Callable[[State], Mapping[int, State]],
    accepts: Callable[[State], bool],
    cause: str,
) -> Machine:
    """Return the automaton of the states that `moves` reaches and that can end.

    moves(state) gives the state after each legal byte. GrammarError, which names
    `cause`, beyond MAX_STATES.
    """
    number = {start: 0}
    order, targets = [start], list[Mapping[int, State]]()
    for state in order:  # grows while it is walked
        targets.append(moves(state))
        for after in targets[-1].values():
            if after not in number:
                number[after] = len(order)
                order.append(after)
        if len(order) > MAX_STATES:
            raise GrammarError(
                f"{cause} needs an automaton of more than {MAX_STATES:,} states: "
                "lower its counts"
            )
    edges = [{byte: number[after] for byte, after in row.items()} for row in targets]
    return _trimmed(edges, [accepts(state) for state in order])


def _trimmed(edges: list[dict[int, int]], accepting: list[bool]) -> Machine:
    """Return the machine of the states from which an accepting one can be reached."""
    sources: list[set[int]] = [set() for _ in edges]
    for state, row in enumerate(edges):
        for after in row.values():
            sources[after].add(state)
    live = {state for state, end in enumerate(accepting) if end}
    work = list(live)
    while work:
        new = sources[work.pop()] - live
        live |= new
        work += new
    kept = {state: i for i, state in enumerate(sorted(live | {0}))}  # 0 is the start
    rows = [_grouped(edges[state], kept if state in live else {}) for state in kept]
    return Machine(
        tuple(rows), frozenset(i for state, i in kept.items() if accepting[state])
    )


def _grouped(row: dict[int, int], kept: dict[int, int]) -> tuple[Edge, ...]:
    groups: dict[int, list[int]] = {}
    for byte, after in row.items():
        if after in kept:
            groups.setdefault(kept[after], []).append(byte)
    return tuple((frozenset(group), after) for after, group in groups.items())


def product(
    every: Iterable[Expression], none: Iterable[Expression], cause: str
) -> Machine:
    """Return the texts that match all trees of `every` and no tree of `none`.

    At least one tree of `every` is needed, and none of them may have calls.
    """
    inside = [Automaton(tree) for tree in every]
    outside = [Automaton(tree) for tree in none]
    n_inside = len(inside)

    def moves(states: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
        pairs = zip(inside + outside, states, strict=True)
        rows = [automaton.moves(state) for automaton, state in pairs]
        shared = set(rows[0]).intersection(*rows[1:n_inside])
        return {byte: tuple(row.get(byte, DEAD) for row in rows) for byte in shared}

    def accepts(states: tuple[int, ...]) -> bool:
        pairs = zip(inside + outside, states, strict=True)
        ends = [automaton.is_final(state) for automaton, state in pairs]
        return all(ends[:n_inside]) and not any(ends[n_inside:])

    start = tuple(automaton.start for automaton in inside + outside)
    return explore(start, moves, accepts, cause)
