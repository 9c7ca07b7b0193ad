"""Sets of strings and their JSON texts: lengths, patterns, constants.

Public: Strings, NoComplementError, intersection_of, complement_of, smallest, is_text.

A string is written in every spelling of RFC 8259, each code point counting once.
Constants (enum, const, declared keys) and extra keys have the canonical spelling only.
A string that has only a length is a counted repetition, however long; beside a pattern
or an excluded value, lengths are part of a product of automata, which has a limit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tinyllm.errors import GrammarError
from tinyllm.grammar import json_text
from tinyllm.grammar.expression import (
    Alternation,
    Concatenation,
    Expression,
    Repetition,
    literal,
)
from tinyllm.grammar.jsonschema import letters, spelling
from tinyllm.grammar.jsonschema.automaton import Machine, product
from tinyllm.grammar.jsonschema.formats import FORMATS, INEXACT
from tinyllm.grammar.jsonschema.letters import Alphabet
from tinyllm.grammar.utf8 import ANY, Range, Spelling, one_of

_CANONICAL = one_of(spelling.canonical_paths(ANY))
MAX_PATTERNS = 5  # that one string must match or not: their product doubles with each


class NoComplementError(Exception):
    """The values outside a set cannot be written; the words name the keyword."""


@dataclass(frozen=True)
class Strings:
    """All strings that fulfil every field; without fields, every string."""

    min_length: int = 0
    max_length: int | None = None
    patterns: frozenset[str] = frozenset()  # each is found somewhere in the string
    without: frozenset[str] = frozenset()  # none of these is found
    values: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()

    def contains(self, value: str) -> bool:
        """Return whether a value fulfils every field."""
        among = self.values is None or value in self.values
        return among and value in self._of((value,))

    def intersection(self, other: Strings) -> tuple[Strings, ...]:
        """Return the strings in both sets, () if there is certainly none."""
        found = Strings(
            max(self.min_length, other.min_length),
            smallest(self.max_length, other.max_length),
            self.patterns | other.patterns,
            self.without | other.without,
            None,
            self.excluded | other.excluded,
        )
        if found.max_length is not None and found.min_length > found.max_length:
            return ()
        if len(found.patterns | found.without) > MAX_PATTERNS:
            raise GrammarError(
                f"a string has more than {MAX_PATTERNS} patterns and formats at once"
            )
        values = [s.values for s in (self, other) if s.values is not None]
        if not values:
            return (found,)
        wanted = frozenset.intersection(*values)
        fit = frozenset(found._of(wanted))
        if fit != wanted and found.patterns & INEXACT:
            raise GrammarError("a constant may be of a format, or may not")
        return (Strings(values=fit),) if fit else ()

    def complement(self) -> tuple[Strings, ...]:
        """Return all other strings: one set for each field."""
        if self.patterns & INEXACT:
            raise NoComplementError("format")
        outside = [Strings(without=frozenset((p,))) for p in sorted(self.patterns)]
        outside += [Strings(patterns=frozenset((p,))) for p in sorted(self.without)]
        low, high = self.min_length, self.max_length
        outside += [Strings(max_length=low - 1)] if low else []
        outside += [Strings(min_length=high + 1)] if high is not None else []
        outside += [Strings(excluded=self.values)] if self.values is not None else []
        outside += [Strings(values=self.excluded)] if self.excluded else []
        return tuple(outside)

    def expression(self) -> Expression:
        """Return the JSON texts of the set, quotes included; they may be none."""
        return self._spelled(spelling.paths, json_text.CHARACTER)

    def key(self) -> Expression:
        """Return the canonical JSON texts of the set, as keys of an object."""
        return self._spelled(spelling.canonical_paths, _CANONICAL)

    def _spelled(
        self, paths: Callable[[list[Range]], list[Spelling]], any_character: Expression
    ) -> Expression:
        if self.values is not None:
            return _constants(self.values)
        if self.patterns or self.without or self.excluded:
            alphabet = letters.alphabet_of(self._patterns(), self.excluded)
            machine = self._machine(alphabet)
            inside: Expression = letters.spelled(machine, alphabet, paths)
        else:
            inside = Repetition(any_character, self.min_length, self.max_length)
        return Concatenation((json_text.QUOTE, inside, json_text.QUOTE))

    def _patterns(self) -> list[str]:
        return sorted(self.patterns | self.without)

    def _machine(self, alphabet: Alphabet) -> Machine:
        """Return the words of the set over the letters of an alphabet."""
        every = [letters.search(p, alphabet) for p in sorted(self.patterns)]
        none: list[Expression] = []
        none += [letters.search(p, alphabet) for p in sorted(self.without)]
        words = tuple(letters.word(text, alphabet) for text in sorted(self.excluded))
        none += [Alternation(words)] if words else []
        lengths = Repetition(alphabet.any, self.min_length, self.max_length)
        cause = f"a string with {self._described()}"
        return product([lengths, *every], none, cause)

    def _described(self) -> str:
        """Return the fields in the words of a schema."""
        formats = {pattern: f"format {name}" for name, pattern in FORMATS.items()}
        said = [formats.get(p, f"pattern {p[:60]}") for p in self._patterns()]
        said += ["excluded values"] if self.excluded else []
        said += [f"minLength {self.min_length}"] if self.min_length else []
        said += [f"maxLength {self.max_length}"] if self.max_length is not None else []
        return ", ".join(said)

    def _of(self, values: Iterable[str]) -> list[str]:
        """Return those of some values that fulfil every field but `values`."""
        fit = [
            value
            for value in values
            if self.min_length <= len(value) and value not in self.excluded
            if self.max_length is None or len(value) <= self.max_length
        ]
        if not (fit and self._patterns()):
            return fit
        alphabet = letters.alphabet_of(self._patterns(), fit)
        machine = self._machine(alphabet)
        return [v for v in fit if letters.accepts(machine, v, alphabet)]


def intersection_of(
    first: tuple[Strings, ...], second: tuple[Strings, ...]
) -> tuple[Strings, ...]:
    """Return the strings in both unions."""
    both = [s for a in first for b in second for s in a.intersection(b)]
    return tuple(dict.fromkeys(both))


def complement_of(strings: tuple[Strings, ...]) -> tuple[Strings, ...]:
    """Return the strings in no set of a union."""
    outside: tuple[Strings, ...] = (Strings(),)
    for some in strings:
        outside = intersection_of(outside, some.complement())
    return outside


def smallest(*bounds: int | None) -> int | None:
    """Return the smallest of some upper bounds, of which None means no bound."""
    return min((bound for bound in bounds if bound is not None), default=None)


def _constants(values: Iterable[str]) -> Expression:
    texts = (json.dumps(value, ensure_ascii=False) for value in sorted(values))
    return Alternation(tuple(map(literal, texts)))


def is_text(value: object) -> bool:
    """Return whether a value is a string of JSON: one without lone surrogates."""
    return isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value)
