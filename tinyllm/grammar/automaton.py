"""From an expression tree to a deterministic automaton over bytes.

Public: Automaton, Graph, graph_of, extend.

Thompson's construction (Communications of the ACM 11(6), 1968) turns the tree into a
graph whose edges carry byte sets or nothing; the subset construction (Rabin and Scott,
1959) turns sets of its nodes into the states of a deterministic automaton, one row of
256 successors at a time and only when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tinyllm.grammar.expression import (
    Alternation,
    ByteSet,
    Edge,
    Expression,
    Machine,
    Repetition,
    Sequence,
    check_size,
)
from tinyllm.grammar.lazy import DEAD, Lazy


@dataclass
class Graph:
    """Thompson's graph: node 0 is the start, node 1 the only accepting node.

    An edge is free, or carries a set of bytes, or calls a rule by its name.
    """

    free: list[list[int]] = field(default_factory=lambda: [[], []])
    edges: list[list[Edge]] = field(default_factory=lambda: [[], []])
    calls: list[list[tuple[str, int]]] = field(default_factory=lambda: [[], []])

    def node(self) -> int:
        """A new node without edges."""
        self.free.append([])
        self.edges.append([])
        self.calls.append([])
        return len(self.free) - 1


def graph_of(expression: Expression) -> Graph:
    """Thompson's graph of one expression."""
    graph = Graph()
    extend(graph, expression, 0, 1)
    return graph


def extend(graph: Graph, expression: Expression, source: int, target: int) -> None:
    """Add the expression between two nodes of a graph, without recursion.

    Each piece of work only adds edges out of its source and into its target, so paths
    from one to the other spell exactly its expression.
    """
    work = [(expression, source, target)]
    while work:
        node, source, target = work.pop()
        if isinstance(node, ByteSet):
            graph.edges[source].append((node.allowed, target))
        elif isinstance(node, Alternation):
            work += [(option, source, target) for option in node.options]
        elif isinstance(node, Sequence):
            work += _chain(graph, node.parts, source, target)
        elif isinstance(node, Repetition):
            work += _repeat(graph, node, source, target)
        elif isinstance(node, Machine):
            _embed(graph, node, source, target)
        else:
            graph.calls[source].append((node.rule, target))


def _embed(graph: Graph, machine: Machine, source: int, target: int) -> None:
    nodes = [graph.node() for _ in machine.edges]
    graph.free[source].append(nodes[0])
    for state, edges in enumerate(machine.edges):
        graph.edges[nodes[state]] += [(allowed, nodes[to]) for allowed, to in edges]
        if state in machine.accepting:
            graph.free[nodes[state]].append(target)


Work = list[tuple[Expression, int, int]]


def _chain(
    graph: Graph, parts: tuple[Expression, ...], source: int, target: int
) -> Work:
    if not parts:
        graph.free[source].append(target)
        return []
    stops = [source, *(graph.node() for _ in parts[1:]), target]
    return list(zip(parts, stops, stops[1:], strict=False))


def _repeat(graph: Graph, node: Repetition, source: int, target: int) -> Work:
    work: Work = []
    node = _flat(node)
    copies = node.least if node.most is None else node.most
    for done in range(copies):
        if done >= node.least:
            graph.free[source].append(target)
        following = graph.node()
        work.append((node.body, source, following))
        source = following
    if node.most is None:
        hub = graph.node()
        graph.free[source].append(hub)
        work.append((node.body, hub, hub))
        source = hub
    graph.free[source].append(target)
    return work


def _flat(node: Repetition) -> Repetition:
    """The same repetition without optional ones directly inside: (x?){9} is x{0,9}.

    Each copy of (x?){9} would see all that follow, which is quadratic; x{0,9} is not.
    """
    outer = [node]
    while isinstance(outer[-1].body, Repetition):
        outer.append(outer[-1].body)
    flat = outer.pop()
    for node in reversed(outer):
        if flat.least > 0:
            flat = Repetition(flat, node.least, node.most)
        elif node.most == 0 or flat.most == 0:
            flat = Repetition(flat.body, 0, 0)
        else:
            endless = node.most is None or flat.most is None
            most = None if endless else (node.most or 0) * (flat.most or 0)
            flat = Repetition(flat.body, 0, most)
    return flat


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
