"""Deterministic automata as parts of a tree: from a step function, or as a product.

Public: Machine, explore, product.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from tinyllm.errors import GrammarError
from tinyllm.grammar.expression import Expression
from tinyllm.grammar.jsonschema.automaton import Automaton
from tinyllm.grammar.lazy import DEAD
from tinyllm.grammar.network import Edge, Graph

MAX_STATES = 20_000
State = TypeVar("State", bound=Hashable)


@dataclass(frozen=True)
class Machine:
    """A deterministic automaton as a part of a tree: state 0 is its start.

    `edges[state]` are its moves, whose byte sets do not overlap.
    """

    edges: tuple[tuple[Edge, ...], ...]
    accepting: frozenset[int]
    size: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", 1 + len(self.edges))

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
    """The automaton of the states that `moves` reaches and that can lead to an end.

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
    """The machine of the states from which an accepting one can be reached."""
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
    return tuple((frozenset(held), after) for after, held in groups.items())


def product(
    every: Iterable[Expression], none: Iterable[Expression], cause: str
) -> Machine:
    """The texts that match all trees of `every` (at least one) and no tree of `none`.

    The product construction (Rabin and Scott, 1959). The trees must be without calls.
    """
    inside = [Automaton(tree) for tree in every]
    outside = [Automaton(tree) for tree in none]
    n_inside = len(inside)

    def moves(states: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
        rows = [automaton.moves(states[i]) for i, automaton in enumerate(inside)]
        away = [a.moves(states[n_inside + i]) for i, a in enumerate(outside)]
        shared = set(rows[0]).intersection(*rows[1:])
        return {
            byte: (
                *(row[byte] for row in rows),
                *(row.get(byte, DEAD) for row in away),
            )
            for byte in shared
        }

    def accepts(states: tuple[int, ...]) -> bool:
        ends = [
            automaton.accepting[state]
            for automaton, state in zip(inside + outside, states, strict=True)
        ]
        return all(ends[:n_inside]) and not any(ends[n_inside:])

    start = tuple(automaton.start for automaton in inside + outside)
    return explore(start, moves, accepts, cause)
