"""The rules of a grammar as one graph, and what each node of it needs and begins with.

Public: Network.

A recursive transition network (Woods 1970, Communications of the ACM 13(10)): each rule
has a part of the graph, from a start to an end node. Knuth's generalisation of
Dijkstra's algorithm (1977, Information Processing Letters 6(1)) finds how many bytes
each node is away from the end of its rule.

The body of a counted repetition is a rule without a name, and the count is part of a
state (pushdown.py). This works where each byte shows whether the body goes on, begins
again or is over; elsewhere, as in [ab]{0,99}b, the body is copied as often as it may
occur.

Before: grammar.regex. Next: grammar.states.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

from tinyllm.errors import GrammarError
from tinyllm.grammar.expression import (
    FAR,
    CallEdge,
    Expression,
    Graph,
    Name,
    Repetition,
    Rules,
    extend,
)

MAX_SUBSETS = 10_000  # of nodes of one body: of more, the body is copied


class Network:
    """The graph of all rules, and what each node and each rule needs and begins with.

    Bytes outside `alphabet` do not count: no token has them. `needed[node]` bytes are
    the fewest to the end of its rule. Where every node that can reach an end does so by
    bytes that are tokens `alone`, too, only these count, which makes `needed` a number
    of tokens that is enough; `by_bytes` says so, and `cheap` are these bytes. `starts`
    and `ends` are the nodes of each rule, `ENTRY` and `EXIT` those of the whole text.
    `edges` and `calls` are those that can reach an end. `first[rule]` are the bytes
    with which a rule can begin, `begins[rule]` the rules that it can call before any
    byte, `entry[rule]` the nodes it can be in then, and `nullable` the rules that may
    be empty. GrammarError for a rule that calls itself before it has read a byte.
    """

    ENTRY, EXIT = 0, 1

    def __init__(
        self, rules: Rules, alphabet: Iterable[int], alone: Iterable[int]
    ) -> None:
        self.graph = Graph(bodies={})
        self.starts: dict[Name, int] = {}
        self.ends: dict[Name, int] = {}
        extend(self.graph, [(rules.start, self.ENTRY, self.EXIT)], "the grammar")
        for name, body in rules.rules.items():
            self._add_rule(name, body, f"the rule {name}")
        self._add_bodies()
        self._alphabet, self._alone = frozenset(alphabet), frozenset(alone)
        self._measure()
        # A copied body may have counted parts of its own, so look again.
        while unclear := self._unclear():
            for source, call in unclear:
                self._copy(source, call)
            self._add_bodies()
            self._measure()

    def _add_rule(self, name: Name, body: Expression, cause: str) -> None:
        self.starts[name], self.ends[name] = self.graph.node(), self.graph.node()
        extend(self.graph, [(body, self.starts[name], self.ends[name])], cause)

    def _add_bodies(self) -> None:
        """Add a rule for each counted body that has none yet, and for those in it."""
        bodies = self.graph.bodies or {}
        while new := [pair for pair in bodies.values() if pair[0] not in self.starts]:
            for number, body in new:
                self._add_rule(number, body, "the body of a counted repetition")

    def _copy(self, source: int, call: CallEdge) -> None:
        """Replace a counted call by copies of its body."""
        limit = None if call.max == FAR else call.max
        body = next(b for n, b in (self.graph.bodies or {}).values() if n == call.rule)
        self.graph.calls[source] = [
            c for c in self.graph.calls[source] if c[:2] != call[:2]
        ]
        node = Repetition(body, call.min, limit)
        times = f"{call.min:,} {'or more' if limit is None else f'to {limit:,}'} times"
        cause = f"a repetition ({times}) whose end is ambiguous, so that it is copied,"
        extend(self.graph, [(node, source, call.to)], cause, copied=node)

    def _measure(self) -> None:
        """Work out everything that the class promises of the graph as it is now."""
        alphabet = self._alphabet
        self.is_end = frozenset((self.EXIT, *self.ends.values()))
        self.restart = {
            self.ends[name]: name for name in self.ends if isinstance(name, int)
        }
        self.edges = [
            [(allowed & alphabet, to) for allowed, to in edges if allowed & alphabet]
            for edges in self.graph.edges
        ]
        # By any bytes first; if bytes that are tokens reach as far, by these alone.
        self.cheap, self.needed = alphabet, self._distances(alphabet)
        lone = self._distances(self._alone)
        self.by_bytes = [n < FAR for n in lone] == [n < FAR for n in self.needed]
        if self.by_bytes:
            self.cheap, self.needed = self._alone, lone
        # Leave only edges and calls from which the end of the rule can be reached.
        needed, starts = self.needed, self.starts
        self.nullable = {name for name, start in starts.items() if not needed[start]}
        self.edges = [
            [(allowed, to) for allowed, to in edges if needed[to] < FAR]
            for edges in self.edges
        ]
        self.calls = [
            [
                call._replace(min=0) if call.rule in self.nullable else call
                for call in calls
                if needed[call.to] + needed[starts[call.rule]] < FAR
            ]
            for calls in self.graph.calls
        ]
        self.first = self._first_bytes()

    def _distances(self, cheap: frozenset[int]) -> list[int]:
        """Return the fewest bytes from each node to the end of its rule, FAR for none.

        Only bytes of `cheap` count. A call costs what its rule's start needs, as often
        as it has to be read, so its node waits for both that and the node behind it.
        """
        graph = self.graph
        before: list[list[tuple[int, int]]] = [[] for _ in graph.free]
        calls: list[list[tuple[int, int, int, int]]] = [[] for _ in graph.free]
        for node, free in enumerate(graph.free):
            for to in free:
                before[to].append((node, 0))
            for allowed, to in self.edges[node]:
                if allowed & cheap:
                    before[to].append((node, 1))
            for call in graph.calls[node]:
                start = self.starts.get(call.rule)
                if start is None:
                    raise GrammarError(f"the grammar has no rule {call.rule!r}")
                for waited_for in (start, call.to):
                    calls[waited_for].append((node, max(call.min, 1), start, call.to))
        needed = [FAR] * len(before)
        # Dijkstra from the ends back, so a node is final when it is first taken out.
        queue = [(0, end) for end in sorted(self.is_end)]
        while queue:
            distance, node = heapq.heappop(queue)
            if needed[node] <= distance:
                continue
            needed[node] = distance
            found = [(distance + cost, source) for source, cost in before[node]]
            found += [
                (times * needed[start] + needed[to], source)
                for source, times, start, to in calls[node]
            ]
            for total, source in found:
                if total < needed[source]:
                    heapq.heappush(queue, (total, source))
        return needed

    def _first_bytes(self) -> dict[Name, frozenset[int]]:
        """Return the bytes with which each rule can begin."""
        self.entry = {n: self.reached([start]) for n, start in self.starts.items()}
        self.begins = {
            name: {call.rule for node in nodes for call in self.calls[node]}
            for name, nodes in self.entry.items()
        }
        try:
            names = list(TopologicalSorter(self.begins).static_order())
        except CycleError as error:
            circle = " calls ".join(n for n in error.args[1] if isinstance(n, str))
            raise GrammarError(
                f"a rule calls itself before any byte: {circle:.200}"
            ) from None
        first: dict[Name, frozenset[int]] = {}
        for name in names:
            own = (s for node in self.entry[name] for s, _ in self.edges[node])
            called = (first[other] for other in self.begins[name])
            first[name] = frozenset[int]().union(*own, *called)
        return first

    def reached(self, nodes: Iterable[int]) -> list[int]:
        """Return the nodes that can be reached before any byte and have an edge."""
        return [n for n in self._free_from(nodes) if self.edges[n] or self.calls[n]]

    def _may_end(self, nodes: Iterable[int]) -> bool:
        """Return whether an end can be reached before any byte."""
        return not self.is_end.isdisjoint(self._free_from(nodes))

    def _free_from(self, nodes: Iterable[int]) -> set[int]:
        seen, work = set[int](), list(nodes)
        while work:
            node = work.pop()
            if node not in seen and self.needed[node] < FAR:
                seen.add(node)
                work += self.graph.free[node]
                work += [c.to for c in self.calls[node] if c.rule in self.nullable]
        return seen

    def _bytes_at(self, nodes: Iterable[int]) -> frozenset[int]:
        """Return the bytes that can come next in some nodes."""
        found = set[int]()
        for node in self.reached(nodes):
            found.update(*(allowed for allowed, _ in self.edges[node]))
            found.update(*(self.first[call.rule] for call in self.calls[node]))
        return frozenset(found)

    def _unclear(self) -> list[tuple[int, CallEdge]]:
        """Return each counted call whose body's end a byte does not show, and its node.

        A byte shows it if it cannot both continue a text of the body and begin the next
        one, nor do either and also follow the whole repetition.
        """
        known: dict[Name, frozenset[int]] = {}

        def continues(name: Name) -> frozenset[int]:
            """Return the bytes that can continue a whole text of a body."""
            if name not in known:
                subsets, found = self._subsets(name), frozenset[int]()
                for nodes in subsets:
                    if nodes is not subsets[0] and self._may_end(nodes):
                        found |= self._bytes_at(nodes)
                    for node in self.reached(nodes):
                        last = [c for c in self.calls[node] if self._may_end([c.to])]
                        found = found.union(*map(goes_on, last))
                known[name] = found if subsets else frozenset(range(256))
            return known[name]

        def goes_on(call: CallEdge) -> frozenset[int]:
            """Return the bytes that can continue a text of a whole repetition."""
            if isinstance(call.rule, str):
                return frozenset()  # what may follow a rule is promised (Rules)
            again = self.first[call.rule] if call.min != call.max else frozenset[int]()
            return continues(call.rule) | again

        return [
            (node, call)
            for node, calls in enumerate(self.calls)
            for call in calls
            if isinstance(call.rule, int)
            and (
                continues(call.rule) & self.first[call.rule]
                or goes_on(call) & self._bytes_at([call.to])
            )
        ]

    def _subsets(self, name: Name) -> list[frozenset[int]]:
        """Return the sets of nodes to which the beginnings of a rule's texts can lead.

        None where two calls can begin alike, or where there are very many sets.
        """
        found = [frozenset((self.starts[name],))]
        seen = set(found)
        # The subset construction again, on raw nodes.
        for nodes in found:  # grows while it is walked
            effects: dict[int, set[tuple[object, int]]] = {}
            for node in self.reached(nodes):
                for allowed, to in self.edges[node]:
                    for byte in allowed:
                        effects.setdefault(byte, set()).add((None, to))
                for rule, to, *bounds in self.calls[node]:
                    for byte in self.first[rule]:
                        effects.setdefault(byte, set()).add(((rule, *bounds), to))
            for effect in set(map(frozenset, effects.values())):
                after = frozenset(to for _, to in effect)
                if len({call for call, _ in effect}) > 1 or len(seen) > MAX_SUBSETS:
                    return []
                if after not in seen:
                    seen.add(after)
                    found.append(after)
        return found
