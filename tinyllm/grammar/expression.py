"""The expression tree of a regular expression or a schema, and the graph it becomes.

Public: ByteSet, Concatenation, Alternation, Repetition, Call, Part, Expression, Rules,
literal, optional, EMPTY_TEXT, NOTHING, Graph, CallEdge, extend, graph_of.

Five immutable kinds of node over bytes are enough for every grammar of the course; a
`Part` is an automaton that was made elsewhere (jsonschema/). Thompson's construction
(Communications of the ACM 11(6), 1968) turns a tree into a graph whose edges carry byte
sets or nothing, or call a rule.

Next: `utf8`.

Before: decode.threads. Next: grammar.utf8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tinyllm.errors import GrammarError

MAX_SIZE = 100_000  # automaton nodes
MAX_COPIED = 32  # times: so often a set of bytes is copied, where others are counted
FAR = 1 << 1000  # a bound without limit; the distance to an end that is never reached


@dataclass(frozen=True)
class ByteSet:
    """One byte out of `allowed`; the empty set matches nothing."""

    allowed: frozenset[int]


@dataclass(frozen=True)
class Concatenation:
    """Every part, one after the other; no parts match the empty text."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Alternation:
    """Any one of the options; no options match nothing."""

    options: tuple[Expression, ...]


@dataclass(frozen=True)
class Repetition:
    """The body `min` to `max` times; `max` None means without end."""

    body: Expression
    min: int = 0
    max: int | None = None


@dataclass(frozen=True)
class Call:
    """A text of a rule of the grammar, by its name: rules may call each other."""

    rule: str


class Part(Protocol):
    """A part of a tree that adds itself to a graph: an automaton made elsewhere."""

    def add_to(self, graph: Graph, source: int, target: int) -> None:
        """Add edges so that paths from source to target spell exactly its texts."""


Expression = ByteSet | Concatenation | Alternation | Repetition | Call | Part


@dataclass(frozen=True)
class Rules:
    """A whole grammar: where it starts, and the rules that are called by name.

    No rule may call itself before it has read a byte. Where a rule may end and also go
    on, it goes on: so what follows a call must not begin with a byte that could
    continue the rule. JSON has this property: no value goes on with a comma, a bracket
    or a space.
    """

    start: Expression
    rules: Mapping[str, Expression] = field(default_factory=dict)


EMPTY_TEXT = Concatenation(())
NOTHING = Alternation(())
_ONE_BYTE = tuple(ByteSet(frozenset((byte,))) for byte in range(256))


def literal(text: str | bytes) -> Expression:
    """Return the expression that matches exactly `text` (a str in UTF-8).

    literal("ab") is a concatenation of two byte sets of one byte each.
    """
    data = text.encode("utf-8") if isinstance(text, str) else text
    return Concatenation(tuple(_ONE_BYTE[byte] for byte in data))


def optional(body: Expression) -> Expression:
    """Return the expression of the body or the empty text."""
    return Repetition(body, 0, 1)


Edge = tuple[frozenset[int], int]  # a set of bytes, and the node to which they lead
Work = list[tuple[Expression, int, int]]  # an expression between two nodes
Name = str | int  # of a rule; an int numbers the body of a counted repetition


class CallEdge(NamedTuple):
    """An edge that reads `min` to `max` texts of a rule, one after the other."""

    rule: Name
    to: int
    min: int = 1
    max: int = 1


@dataclass
class Graph:
    """Thompson's graph: node 0 is the start, node 1 the only accepting node.

    An edge is free, or carries a set of bytes, or calls a rule. Where `bodies` is not
    None, it numbers the bodies of the repetitions that are counted.
    """

    bodies: dict[int, tuple[int, Expression]] | None = None
    free: list[list[int]] = field(default_factory=lambda: [[], []])
    edges: list[list[Edge]] = field(default_factory=lambda: [[], []])
    calls: list[list[CallEdge]] = field(default_factory=lambda: [[], []])

    def node(self) -> int:
        """Return a new node without edges."""
        self.free.append([])
        self.edges.append([])
        self.calls.append([])
        return len(self.free) - 1

    def number(self, body: Expression) -> int | None:
        """Return the number of a counted body, the same for the same object."""
        if self.bodies is None:
            return None
        return self.bodies.setdefault(id(body), (len(self.bodies), body))[0]


def graph_of(expression: Expression) -> Graph:
    """Return Thompson's graph of one expression, with every repetition copied."""
    graph = Graph()
    extend(graph, [(expression, 0, 1)], "the grammar")
    return graph


def extend(
    graph: Graph, work: Work, cause: str, copied: Expression | None = None
) -> None:
    """Add expressions between two nodes of a graph each, without recursion.

    The repetition `copied` is not counted, whatever its size.

    Each piece of work only adds edges out of its source and into its target, so paths
    from one to the other spell exactly its expression. GrammarError, which names
    `cause`, for more than MAX_SIZE new nodes.
    """
    limit = len(graph.free) + MAX_SIZE
    while work:
        node, source, target = work.pop()
        if isinstance(node, ByteSet):
            graph.edges[source].append((node.allowed, target))
        elif isinstance(node, Alternation):
            work += [(option, source, target) for option in node.options]
        elif isinstance(node, Concatenation):
            work += _chain(graph, node.parts, source, target)
        elif isinstance(node, Repetition):
            repeat = _copies if node is copied else _repeat
            work += repeat(graph, _flat(node), source, target)
        elif isinstance(node, Call):
            graph.calls[source].append(CallEdge(node.rule, target))
        else:
            node.add_to(graph, source, target)
        if len(graph.free) > limit:
            raise GrammarError(
                f"{cause} needs more than the limit of {MAX_SIZE:,} automaton nodes: "
                "lower its bounds or split the grammar"
            )


def _chain(
    graph: Graph, parts: tuple[Expression, ...], source: int, target: int
) -> Work:
    if not parts:
        graph.free[source].append(target)
        return []
    stops = [source, *(graph.node() for _ in parts[1:]), target]
    return list(zip(parts, stops, stops[1:], strict=False))  # part, source, target


def _repeat(graph: Graph, node: Repetition, source: int, target: int) -> Work:
    n_copies = node.min if node.max is None else node.max
    # One call serves any bounds; a few copies of one node are quicker than a call.
    if n_copies > (MAX_COPIED if isinstance(node.body, ByteSet) else 1):
        number = graph.number(node.body)
        if number is not None:
            limit = FAR if node.max is None else node.max
            graph.calls[source].append(CallEdge(number, target, node.min, limit))
            graph.free[source] += [] if node.min else [target]
            return []
    return _copies(graph, node, source, target)


def _copies(graph: Graph, node: Repetition, source: int, target: int) -> Work:
    """Return the work of a repetition as a copy of its body for each time."""
    work: Work = []
    n_copies = node.min if node.max is None else node.max
    for done in range(min(n_copies, MAX_SIZE + 1)):
        if done >= node.min:
            graph.free[source].append(target)  # enough of them: it may end here
        following = graph.node()
        work.append((node.body, source, following))
        source = following
    if node.max is None:
        hub = graph.node()  # each further copy leads back to it
        graph.free[source].append(hub)
        work.append((node.body, hub, hub))
        source = hub
    graph.free[source].append(target)
    return work


def _flat(node: Repetition) -> Repetition:
    """Return the same repetition without optional ones directly inside.

    (x?){9} becomes x{0,9}. Each copy of (x?){9} would see all that follow, which is
    quadratic; x{0,9} is not.
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
