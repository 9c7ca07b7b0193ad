"""The texts of null, booleans, numbers and strings, and the rules that they make.

Public: Scalars, is_nothing, one_of.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tinyllm.grammar.expression import (
    Alternation,
    Call,
    Concatenation,
    Expression,
    check_size,
    literal,
)
from tinyllm.grammar.jsonschema.numbers import Numbers
from tinyllm.grammar.jsonschema.regular import Machine, is_empty
from tinyllm.grammar.jsonschema.strings import Strings
from tinyllm.grammar.jsonschema.values import Values


@dataclass
class Scalars:
    """Makes expressions of sets, each set once; `rules` are those called by name."""

    rules: dict[str, Expression] = field(default_factory=dict)
    _numbers: dict[Numbers, Expression] = field(default_factory=dict)
    _strings: dict[tuple[Strings, ...], Expression] = field(default_factory=dict)
    _keys: dict[tuple[Strings, ...], Expression] = field(default_factory=dict)

    def of(self, found: Values, name: str) -> list[Expression]:
        """The options for the scalars of a set; `name` is for a rule of strings."""
        options = [
            literal(w) for w in sorted(w for h in found.words for w in h.allowed)
        ]
        options += [self._number(held) for held in found.numbers]
        options += [self._string(found.strings, name)] if found.strings else []
        return [option for option in options if not is_nothing(option)]

    def key(self, keys: tuple[Strings, ...]) -> Expression:
        """The canonical texts of the keys of an object."""
        if keys not in self._keys:
            self._keys[keys] = one_of([held.key() for held in keys])
        return self._keys[keys]

    def rule(self, name: str, tree: Expression) -> Expression:
        """The call of a new rule."""
        self.rules[name] = tree
        return Call(name)

    def _number(self, held: Numbers) -> Expression:
        if held not in self._numbers:
            tree = held.expression()
            self._numbers[held] = (
                self.rule("number", tree) if held == Numbers() else tree
            )
        return self._numbers[held]

    def _string(self, strings: tuple[Strings, ...], name: str) -> Expression:
        """One expression for all strings: a rule unless they are given."""
        if strings not in self._strings:
            options = [held.expression() for held in strings]
            options = [option for option in options if not is_nothing(option)]
            tree = one_of(options)
            check_size(tree, "the length or pattern of the string")
            if options and any(held.values is None for held in strings):
                generic = strings == (Strings(),)
                tree = self.rule("string" if generic else f"string {name}", tree)
            self._strings[strings] = tree
        return self._strings[strings]


def one_of(options: list[Expression]) -> Expression:
    """Any one of the options, without a node around a single one."""
    return options[0] if len(options) == 1 else Alternation(tuple(options))


def is_nothing(tree: Expression) -> bool:
    """Whether a tree without calls and repetitions matches no text at all."""
    if isinstance(tree, Machine):
        return is_empty(tree)
    if isinstance(tree, Concatenation):
        return any(map(is_nothing, tree.parts))
    return isinstance(tree, Alternation) and all(map(is_nothing, tree.options))
