"""The expression tree: what a regular expression or a schema becomes.

Public: ByteSet, Concatenation, Alternation, Repetition, Call, Part, Expression, Rules,
literal, optional, EMPTY_TEXT, NOTHING, MAX_SIZE, check_size.

Five immutable kinds of node over bytes are enough for every grammar of the course; a
`Part` is an automaton that was made elsewhere (jsonschema/).
`size` counts the automaton nodes a tree asks for, so that a tree which would grow too
large is refused before anything is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tinyllm.errors import GrammarError

if TYPE_CHECKING:
    from tinyllm.grammar.network import Graph

MAX_SIZE = 100_000  # automaton nodes


def _set_size(node: Expression, size: int) -> None:
    object.__setattr__(node, "size", 1 + size)


@dataclass(frozen=True)
class ByteSet:
    """One byte out of `allowed`; the empty set matches nothing."""

    allowed: frozenset[int]
    size: int = field(default=1, init=False, repr=False, compare=False)


@dataclass(frozen=True)
class Concatenation:
    """Every part, one after the other; no parts match the empty text."""

    parts: tuple[Expression, ...]
    size: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _set_size(self, sum(part.size for part in self.parts))


@dataclass(frozen=True)
class Alternation:
    """Any one of the options; no options match nothing."""

    options: tuple[Expression, ...]
    size: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _set_size(self, sum(option.size for option in self.options))


@dataclass(frozen=True)
class Repetition:
    """The body `min` to `max` times; `max` None means without end."""

    body: Expression
    min: int = 0
    max: int | None = None
    size: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        copies = self.min + 1 if self.max is None else self.max
        _set_size(self, copies * (self.body.size + 1))


@dataclass(frozen=True)
class Call:
    """A text of a rule of the grammar, by its name: rules may call each other."""

    rule: str
    size: int = field(default=1, init=False, repr=False, compare=False)


class Part(Protocol):
    """A part of a tree that adds itself to a graph: an automaton made elsewhere."""

    @property
    def size(self) -> int:
        """The number of automaton nodes it asks for."""

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
    """The expression that matches exactly `text` (a str in UTF-8).

    literal("ab") is a sequence of two byte sets of one byte each.
    """
    data = text.encode("utf-8") if isinstance(text, str) else text
    return Concatenation(tuple(_ONE_BYTE[byte] for byte in data))


def optional(body: Expression) -> Expression:
    """The body or the empty text."""
    return Repetition(body, 0, 1)


def check_size(expression: Expression, cause: str) -> Expression:
    """The expression itself, if its automaton stays within MAX_SIZE nodes.

    Raises GrammarError, which names `cause`, for a larger one.
    """
    if expression.size <= MAX_SIZE:
        return expression
    raise GrammarError(
        f"{cause} needs {expression.size:,} automaton nodes, more than the limit of "
        f"{MAX_SIZE:,}: lower its bounds or split the grammar"
    )
