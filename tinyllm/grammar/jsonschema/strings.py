"""Sets of strings and their JSON texts: lengths, patterns, given values.

Public: Strings, NoComplementError, is_text.

A string is written in every spelling of RFC 8259, each code point counting once. Given
values (enum, const, declared keys) and extra keys have the canonical spelling only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
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
from tinyllm.grammar.jsonschema.automaton import Automaton
from tinyllm.grammar.jsonschema.formats import INEXACT
from tinyllm.grammar.jsonschema.letters import Alphabet
from tinyllm.grammar.jsonschema.regular import Machine, product

MAX_PATTERNS = 5  # that one string must match or not: their product doubles with each


class NoComplementError(Exception):
    """The values outside a set cannot be written; the words name the keyword."""


@dataclass(frozen=True)
class Strings:
    """All strings that fulfil every field; without fields, every string."""

    least: int = 0
    most: int | None = None
    patterns: frozenset[str] = frozenset()  # each is found somewhere in the string
    without: frozenset[str] = frozenset()  # none of these is found
    values: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()

    def holds(self, value: str) -> bool:
        """Whether a value fulfils every field."""
        return (self.values is None or value in self.values) and value in self._of(
            (value,)
        )

    def meet(self, other: Strings) -> tuple[Strings, ...]:
        """The strings in both sets, () if there is certainly none."""
        mosts = [most for most in (self.most, other.most) if most is not None]
        both = Strings(
            max(self.least, other.least),
            min(mosts) if mosts else None,
            self.patterns | other.patterns,
            self.without | other.without,
            None,
            self.excluded | other.excluded,
        )
        if both.most is not None and both.least > both.most:
            return ()
        if len(both.patterns | both.without) > MAX_PATTERNS:
            raise GrammarError(
                f"a string has more than {MAX_PATTERNS} patterns and formats at once"
            )
        given = [s.values for s in (self, other) if s.values is not None]
        if given:
            wanted = frozenset.intersection(*given)
            fit = frozenset(both._of(wanted))
            if fit != wanted and both.patterns & INEXACT:
                raise GrammarError("a given value may be of a format, or may not")
            return (Strings(values=fit),) if fit else ()
        return (both,)

    def complement(self) -> tuple[Strings, ...]:
        """All strings outside the set: one set for each field."""
        if self.patterns & INEXACT:
            raise NoComplementError("format")
        outside = [Strings(without=frozenset((p,))) for p in sorted(self.patterns)]
        outside += [Strings(patterns=frozenset((p,))) for p in sorted(self.without)]
        outside += [Strings(most=self.least - 1)] if self.least else []
        outside += [Strings(least=self.most + 1)] if self.most is not None else []
        outside += [Strings(excluded=self.values)] if self.values is not None else []
        outside += [Strings(values=self.excluded)] if self.excluded else []
        return tuple(outside)

    def expression(self) -> Expression:
        """The JSON texts of the set, quotes included; they may be none."""
        if self.values is not None:
            return _given(self.values)
        if self.patterns or self.without or self.excluded:
            alphabet = letters.alphabet_of(self._patterns(), self.excluded)
            inside: Expression = letters.spelled(
                self._machine(alphabet), alphabet, spelling.paths
            )
        else:
            inside = Repetition(json_text.CHARACTER, self.least, self.most)
        return Concatenation((json_text.QUOTE, inside, json_text.QUOTE))

    def key(self) -> Expression:
        """The canonical JSON texts of the set, as keys of an object."""
        if self.values is not None:
            return _given(self.values)
        alphabet = letters.alphabet_of(self._patterns(), self.excluded)
        machine = self._machine(alphabet)
        inside = letters.spelled(machine, alphabet, spelling.canonical_paths)
        return Concatenation((json_text.QUOTE, inside, json_text.QUOTE))

    def _patterns(self) -> list[str]:
        return sorted(self.patterns | self.without)

    def _machine(self, alphabet: Alphabet) -> Machine:
        """The words of the set over the letters of an alphabet."""
        every = [letters.search(p, alphabet) for p in sorted(self.patterns)]
        none: list[Expression] = []
        none += [letters.search(p, alphabet) for p in sorted(self.without)]
        given = tuple(letters.word(text, alphabet) for text in sorted(self.excluded))
        lengths = Repetition(alphabet.any, self.least, self.most)
        cause = "a string with " + (", ".join(self._patterns()) or "given values")[:80]
        none += [Alternation(given)] if given else []
        return product([lengths, *every], none, cause)

    def _of(self, values: Iterable[str]) -> list[str]:
        """Those of some values that fulfil every field but `values`."""
        fit = [
            value
            for value in values
            if self.least <= len(value) and value not in self.excluded
            if self.most is None or len(value) <= self.most
        ]
        if not (fit and self._patterns()):
            return fit
        alphabet = letters.alphabet_of(self._patterns(), fit)
        automaton = Automaton(self._machine(alphabet))
        return [v for v in fit if letters.accepts(automaton, v, alphabet)]


def _given(values: Iterable[str]) -> Expression:
    texts = (json.dumps(value, ensure_ascii=False) for value in sorted(values))
    return Alternation(tuple(map(literal, texts)))


def is_text(value: object) -> bool:
    """Whether a value is a string that JSON can hold: one without lone surrogates."""
    return isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value)
