"""From an expression tree without calls to a deterministic automaton over bytes.

Public: Automaton.

The subset construction (Rabin and Scott, 1959) turns sets of nodes of Thompson's graph
(network.py) into the states of a deterministic automaton, one row of 256 successors at
a time and only when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable

from tinyllm.grammar.expression import Expression, check_size
from tinyllm.grammar.lazy import DEAD, Lazy
from tinyllm.grammar.network import Graph, graph_of


def _productive(graph: Graph) -> list[bool]:
    """For each node of the graph, whether the accepting node can be reached."""
    sources: list[list[int]] = [[] for _ in graph.free]
    for node, (free, edges) in enumerate(zip(graph.free, graph.edges, strict=True)):
        for target in free:
            sources[target].append(node)
        for allowed, target in edges:
            if allowed:
                sources[target].append(node)
    reached = [False] * len(graph.free)
    reached[1], work = True, [1]
    while work:
        for node in sources[work.pop()]:
            if not reached[node]:
                reached[node] = True
                work.append(node)
    return reached


class Automaton(Lazy[int]):
    """A deterministic automaton whose states are ints, made when first asked for.

    DEAD is state 0. A state from which no accepting state can be reached is DEAD.
    """

    def __init__(self, expression: Expression) -> None:
        self._graph = graph_of(check_size(expression, "the grammar"))
        self._productive = _productive(self._graph)
        self.accepting: list[bool] = []
        super().__init__()
        self.start = self._state((0,))

    def next(self, state: int, byte: int) -> int:
        """The state after one byte, DEAD if the byte is illegal."""
        return self.moves(state).get(byte, DEAD)

    def complete(self) -> None:
        """Make every state; GrammarError beyond MAX_STATES or MAX_WORK (lazy.py)."""
        state = 0
        while state < self.n_states:
            self.moves(state)
            state += 1

    def _row(self, state: int) -> dict[int, int]:
        targets: dict[int, list[int]] = {}
        for node in self._sets[state]:
            for allowed, target in self._graph.edges[node]:
                self._count(len(allowed))
                for byte in allowed:
                    targets.setdefault(byte, []).append(target)
        known: dict[tuple[int, ...], int] = {}
        moves = {}
        for byte, nodes in targets.items():
            key = tuple(nodes)
            if key not in known:
                known[key] = self._state(nodes)
            if known[key] != DEAD:
                moves[byte] = known[key]
        return moves

    def _closure(self, items: Iterable[int]) -> frozenset[int]:
        seen = {node for node in items if self._productive[node]}
        work = list(seen)
        while work:
            for node in self._graph.free[work.pop()]:
                if node not in seen and self._productive[node]:
                    seen.add(node)
                    work.append(node)
        self._count(len(seen))
        # Only these tell two sets apart: what can be read next, and may the text end.
        return frozenset(n for n in seen if n == 1 or self._graph.edges[n])

    def _added(self, closure: frozenset[int]) -> None:
        self.accepting.append(1 in closure)
