"""An acceptor of rules that keeps every stack: slow, and independent of the machine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tinyllm.grammar.expression import Rules
from tinyllm.grammar.jsonschema.read import parse
from tinyllm.grammar.network import Graph, graph_of

Stack = tuple[Any, ...] | None  # (rule and node to go on at, the stack below)
Thread = tuple[str | None, int, Stack]


class Acceptor:
    """Reads texts with all threads through the graphs of some rules."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._graphs: dict[str | None, Graph] = {None: graph_of(rules.start)}
        self.start = self._closure([(None, 0, None)])

    def accepts(self, data: bytes) -> bool:
        """Whether the whole text is one of the grammar."""
        threads = self.start
        for byte in data:
            threads = self._closure(
                (rule, to, stack)
                for rule, node, stack in threads
                for allowed, to in self._graph(rule).edges[node]
                if byte in allowed
            )
        return any(thread == (None, 1, None) for thread in threads)

    def _graph(self, rule: str | None) -> Graph:
        if rule not in self._graphs:
            self._graphs[rule] = graph_of(self._rules.rules[rule or ""])
        return self._graphs[rule]

    def _closure(self, threads: Iterable[Thread]) -> set[Thread]:
        work = list(threads)
        seen = set(work)
        while work:
            rule, node, stack = work.pop()
            graph = self._graph(rule)
            new: list[Thread] = [(rule, to, stack) for to in graph.free[node]]
            new += [
                (name, 0, ((rule, to), stack)) for name, to, *_ in graph.calls[node]
            ]
            if node == 1 and stack is not None:
                (caller, to), below = stack
                new.append((caller, to, below))
            work += [thread for thread in new if thread not in seen]
            seen.update(new)
        return seen


def acceptor(source: object, spaces: bool = False) -> Acceptor:
    """The acceptor of a schema."""
    return Acceptor(parse(source, spaces))


def allows(source: object, text: str | bytes, spaces: bool = False) -> bool:
    """Whether a schema allows a text."""
    data = text.encode() if isinstance(text, str) else text
    return acceptor(source, spaces).accepts(data)
