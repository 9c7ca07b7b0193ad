"""The rules of a grammar as one graph, and what can be known of each node beforehand.

Public: Network, Graph, graph_of, extend.

Thompson's construction (Communications of the ACM 11(6), 1968) turns a tree into a
graph whose edges carry byte sets or nothing, or call a rule. All rules together are a
recursive transition network (Woods 1970, Communications of the ACM 13(10)): each rule
is a graph of its own from a start to an end node, whose edges carry bytes or call a
rule. Knuth's generalisation of Dijkstra's algorithm (1977, Information Processing
Letters 6(1)) tells how many bytes each node is away from the end of its rule.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from tinyllm.errors import GrammarError
from tinyllm.grammar.expression import (
    Alternation,
    ByteSet,
    Call,
    Concatenation,
    Expression,
    Repetition,
    Rules,
    check_size,
)

FAR = 1 << 60  # the distance of a node from which the end cannot be reached

Edge = tuple[frozenset[int], int]  # a set of bytes, and the node to which they lead


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
        elif isinstance(node, Concatenation):
            work += _chain(graph, node.parts, source, target)
        elif isinstance(node, Repetition):
            work += _repeat(graph, node, source, target)
        elif isinstance(node, Call):
            graph.calls[source].append((node.rule, target))
        else:
            node.add_to(graph, source, target)


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
    copies = node.min if node.max is None else node.max
    for done in range(copies):
        if done >= node.min:
            graph.free[source].append(target)
        following = graph.node()
        work.append((node.body, source, following))
        source = following
    if node.max is None:
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
        if flat.min > 0:
            flat = Repetition(flat, node.min, node.max)
        elif node.max == 0 or flat.max == 0:
            flat = Repetition(flat.body, 0, 0)
        else:
            endless = node.max is None or flat.max is None
            limit = None if endless else (node.max or 0) * (flat.max or 0)
            flat = Repetition(flat.body, 0, limit)
    return flat


class Network:
    """The graph of all rules; `needed[node]` bytes are the least to its rule's end.

    Bytes outside `spelled` do not count: no token has them. Where every node that can
    reach an end does so by bytes that are tokens `alone`, too, only these count, which
    makes `needed` a number of tokens that is enough; `by_bytes` says so. Else no such
    number is known from bytes, and `needed` is 0 or more. `starts` and `ends` hold
    the nodes of each rule, `ENTRY` and `EXIT` those of the whole text. `edges` and
    `calls` are those that can reach an end. `first[rule]` are the bytes with which a
    rule can begin, `begins[rule]` the calls, `nullable` the rules that may be empty.
    GrammarError for a rule that calls itself before it has read a byte.
    """

    ENTRY, EXIT = 0, 1

    def __init__(
        self, rules: Rules, spelled: Iterable[int], alone: Iterable[int]
    ) -> None:
        self.graph = Graph()
        self.starts: dict[str, int] = {}
        self.ends: dict[str, int] = {}
        for name in rules.rules:
            self.starts[name], self.ends[name] = self.graph.node(), self.graph.node()
        extend(
            self.graph, check_size(rules.start, "the grammar"), self.ENTRY, self.EXIT
        )
        for name, body in rules.rules.items():
            check_size(body, f"the rule {name}")
            extend(self.graph, body, self.starts[name], self.ends[name])
        self._check_names()
        self.is_end = frozenset((self.EXIT, *self.ends.values()))
        spelled = frozenset(spelled)
        self.edges = [
            [(allowed & spelled, to) for allowed, to in edges if allowed & spelled]
            for edges in self.graph.edges
        ]
        self.cheap = spelled
        self.needed = self._distances()
        lone = self._distances(frozenset(alone))
        self.by_bytes = [n < FAR for n in lone] == [n < FAR for n in self.needed]
        if self.by_bytes:
            self.cheap, self.needed = frozenset(alone), lone
        self._prune()
        self.nullable = {
            n for n, start in self.starts.items() if not self.needed[start]
        }
        self.first = self._first_bytes()

    def _check_names(self) -> None:
        for calls in self.graph.calls:
            for name, _ in calls:
                if name not in self.starts:
                    raise GrammarError(f"the grammar has no rule {name!r}")

    def _distances(self, cheap: frozenset[int] | None = None) -> list[int]:
        """The least bytes from each node to the end of its rule, FAR if there are none.

        With `cheap`, only by these bytes. A call costs what its rule's start needs, so
        its node waits for both that and the node behind it.
        """
        before: list[list[tuple[int, int]]] = [[] for _ in self.graph.free]
        callers: dict[int, list[tuple[int, int]]] = {
            s: [] for s in self.starts.values()
        }
        calls_to: list[list[tuple[int, int]]] = [[] for _ in self.graph.free]
        for node, free in enumerate(self.graph.free):
            for to in free:
                before[to].append((node, 0))
            for allowed, to in self.edges[node]:
                if cheap is None or allowed & cheap:
                    before[to].append((node, 1))
            for name, to in self.graph.calls[node]:
                callers[self.starts[name]].append((node, to))
                calls_to[to].append((node, self.starts[name]))
        needed = [FAR] * len(before)
        queue = [(0, end) for end in sorted(self.is_end)]
        while queue:
            distance, node = heapq.heappop(queue)
            if needed[node] <= distance:
                continue
            needed[node] = distance
            found = [(distance + cost, source) for source, cost in before[node]]
            both = [*callers.get(node, ()), *calls_to[node]]
            found += [(distance + needed[other], n) for n, other in both]
            for total, source in found:
                if total < needed[source]:
                    heapq.heappush(queue, (total, source))
        return needed

    def _prune(self) -> None:
        """Leave only edges and calls from which the end of the rule can be reached."""
        needed = self.needed
        self.edges = [
            [(allowed, to) for allowed, to in edges if needed[to] < FAR]
            for edges in self.edges
        ]
        self.calls = [
            [(n, to) for n, to in calls if needed[to] + needed[self.starts[n]] < FAR]
            for calls in self.graph.calls
        ]

    def _first_bytes(self) -> dict[str, frozenset[int]]:
        """The bytes with which each rule can begin."""
        own, calls = {}, {}
        for name, start in self.starts.items():
            own[name], calls[name] = self._begins(start)
        self.begins = calls
        order = TopologicalSorter(calls)
        try:
            names = list(order.static_order())
        except CycleError as error:
            circle = " calls ".join(error.args[1])
            raise GrammarError(
                f"a rule calls itself before any byte: {circle:.200}"
            ) from None
        first: dict[str, frozenset[int]] = {}
        for name in names:
            first[name] = own[name].union(*(first[called] for called in calls[name]))
        return first

    def _begins(self, start: int) -> tuple[frozenset[int], set[str]]:
        """The bytes, and the calls, that can come first after a node."""
        seen, found, called = set[int](), set[int](), set[str]()
        work = [start]
        while work:
            node = work.pop()
            if node in seen or self.needed[node] >= FAR:
                continue
            seen.add(node)
            work += self.graph.free[node]
            found.update(*(allowed for allowed, _ in self.edges[node]))
            for name, to in self.calls[node]:
                called.add(name)
                work += [to] if name in self.nullable else []
        return frozenset(found), called
