"""Texts as words over few letters: each letter a set of code points.

Public: Alphabet, alphabet_of, search, word, accepts, spelled.

Intersecting patterns over bytes is slow: an escape such as \\u00e9 makes each code
point many. So patterns are first read over letters, the coarsest classes of code points
that none of them tells apart; all products are made there, and only the result is
spelled in bytes. Two more letters mean the start and the end of a text: ^ and $.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

from tinyllm.errors import GrammarError
from tinyllm.grammar import regex
from tinyllm.grammar.expression import (
    EMPTY_TEXT,
    ByteSet,
    Concatenation,
    Edge,
    Expression,
    Repetition,
)
from tinyllm.grammar.jsonschema.automaton import DEAD, Automaton, Machine, explore
from tinyllm.grammar.jsonschema.spelling import Trie, trie_of
from tinyllm.grammar.utf8 import ANY, Range, Spelling, merge, overlap

_START, _END = 0, 1
_ANCHORS = ByteSet(frozenset((_START,))), ByteSet(frozenset((_END,)))
MAX_LETTERS = 256


@dataclass(frozen=True)
class Alphabet:
    """letters[i] are the ranges of code points that letter i means."""

    letters: tuple[tuple[Range, ...], ...]

    @property
    def any(self) -> ByteSet:
        """Return every letter that means code points."""
        return ByteSet(frozenset(range(2, len(self.letters))))

    def spell(self, ranges: Iterable[Range]) -> ByteSet:
        """Return the letters of a set of code points, a union of some letters'."""
        wanted = list(overlap(merge(ranges), ANY))
        codes = self.letters[2:]
        return ByteSet(
            frozenset(
                i for i, code in enumerate(codes, 2) if any(overlap(wanted, code[:1]))
            )
        )


def alphabet_of(patterns: Iterable[str], words: Iterable[str]) -> Alphabet:
    """Return the coarsest alphabet over which the patterns and words can be read."""
    sets: list[tuple[Range, ...]] = []

    def collect(ranges: Iterable[Range]) -> Expression:
        sets.append(tuple(overlap(merge(ranges), ANY)))
        return EMPTY_TEXT

    for pattern in patterns:
        regex.parse(pattern, collect, _ANCHORS)
    codes = sorted({ord(char) for text in words for char in text})
    distinct = list(dict.fromkeys(sets)) + [((code, code),) for code in codes]
    cuts = sorted(
        {end for some in (*distinct, ANY) for a, b in some for end in (a, b + 1)}
    )
    classes: dict[tuple[int, ...], list[Range]] = {}
    members = {cut: list[int]() for cut in cuts}
    for i, some in enumerate(distinct):
        for first, last in some:
            for cut in cuts[_index(cuts, first) : _index(cuts, last + 1)]:
                members[cut].append(i)
    for first, after in pairwise(cuts):
        if any(overlap([(first, after - 1)], ANY)):
            classes.setdefault(tuple(members[first]), []).append((first, after - 1))
    if len(classes) + 2 > MAX_LETTERS:
        raise GrammarError(
            f"a pattern tells {len(classes)} sets of characters apart, more than "
            f"{MAX_LETTERS - 2}: use fewer different characters"
        )
    return Alphabet(((), (), *(tuple(merge(some)) for some in classes.values())))


def _index(cuts: list[int], value: int) -> int:
    return bisect_left(cuts, value)


def word(text: str, alphabet: Alphabet) -> Expression:
    """Return the tree of one text."""
    return Concatenation(tuple(alphabet.spell([(ord(c), ord(c))]) for c in text))


def accepts(machine: Machine, text: str, alphabet: Alphabet) -> bool:
    """Return whether a machine over the letters accepts a text."""
    ends: list[int] = [0]
    for char in text:
        letters = alphabet.spell([(ord(char), ord(char))]).allowed
        ends = [to for allowed, to in machine.edges[ends[0]] if letters <= allowed]
        if not ends:
            return False
    return ends[0] in machine.accepting


def search(pattern: str, alphabet: Alphabet) -> Machine:
    """Return the words in which a pattern of ECMA-262 is found, at any place.

    The pattern is read with ^ and $ as letters of their own; a text matches if it does
    so with some number of these letters before and behind it.
    """
    anything = Repetition(ByteSet(alphabet.any.allowed | {_START, _END}))
    tree = regex.parse(pattern, alphabet.spell, _ANCHORS)
    found = Automaton(Concatenation((anything, tree, anything)))
    before = _after(found, {found.start}, {_START})
    empty = _ends(found, _after(found, {found.start}, {_START, _END}))

    def moves(
        at: tuple[frozenset[int], bool],
    ) -> dict[int, tuple[frozenset[int], bool]]:
        rows = [found.moves(state) for state in at[0]]
        after: dict[int, set[int]] = {}
        for row in rows:
            for letter, state in row.items():
                if letter not in (_START, _END):
                    after.setdefault(letter, set()).add(state)
        return {letter: (frozenset(states), False) for letter, states in after.items()}

    def accepts(at: tuple[frozenset[int], bool]) -> bool:
        return (at[1] and empty) or _ends(found, _after(found, set(at[0]), {_END}))

    return explore(
        (frozenset(before), True), moves, accepts, f"the pattern {pattern[:60]}"
    )


def _after(automaton: Automaton, states: set[int], letters: set[int]) -> set[int]:
    """Return the states after any number of these letters."""
    work, seen = list(states), set(states)
    while work:
        state = work.pop()
        for letter in letters:
            after = automaton.moves(state).get(letter, DEAD)
            if after not in seen:
                seen.add(after)
                work.append(after)
    return seen


def _ends(automaton: Automaton, states: Iterable[int]) -> bool:
    return any(map(automaton.is_final, states))


def spelled(
    machine: Machine, alphabet: Alphabet, paths: Callable[[list[Range]], list[Spelling]]
) -> Machine:
    """Return the same words, each letter written in the bytes that `paths` gives it.

    Each state becomes a trie of the spellings of its letters; states with the same
    letters on their edges share the making of it.
    """
    tries: dict[tuple[frozenset[int], ...], Trie] = {}
    signs = [tuple(allowed for allowed, _ in edges) for edges in machine.edges]
    for sign in dict.fromkeys(signs):
        ranges = [merge(r for i in some for r in alphabet.letters[i]) for some in sign]
        tries[sign] = trie_of([paths(some) for some in ranges])
    first, n_nodes = [], 0
    for sign in signs:
        first.append(n_nodes)
        n_nodes += len(tries[sign])
    rows: list[tuple[Edge, ...]] = []
    for state, sign in enumerate(signs):
        goals = [first[after] for _, after in machine.edges[state]]
        for node in tries[sign]:
            rows.append(
                tuple(
                    (allowed, first[state] + to if to >= 0 else goals[~to])
                    for allowed, to in node
                )
            )
    return Machine(tuple(rows), frozenset(first[state] for state in machine.accepting))
