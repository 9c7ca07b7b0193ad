"""An independent reader of rules, and random rules to read.

The simulator keeps every stack that the grammar allows, on the expression trees alone:
no graph, no determinism, no vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from hypothesis import strategies as st

from tinyllm.grammar.expression import (
    EMPTY_TEXT,
    Alternation,
    ByteSet,
    Call,
    Concatenation,
    Expression,
    Repetition,
    Rules,
)

Stack = tuple[Expression, ...]  # what is still to be read, the next first
Stacks = frozenset[Stack]


class Simulator:
    """Reads a text with all stacks that some rules allow, on the trees themselves.

    `spelled` are the bytes there are. Stacks that cannot be read to the end are left
    out.
    """

    def __init__(self, rules: Rules, spelled: Iterable[int] = range(256)) -> None:
        self.rules, self.spelled = rules, frozenset(spelled)
        self.least = dict.fromkeys(rules.rules, float("inf"))
        for _ in rules.rules:
            for name, body in rules.rules.items():
                self.least[name] = min(self.least[name], self.shortest(body))
        self.next = cache(self._next)
        self.start = self.closure(filter(self.can_be_read, [(rules.start,)]))

    def shortest(self, tree: Expression) -> float:
        """The bytes of a shortest text."""
        if isinstance(tree, ByteSet):
            return 1 if tree.allowed & self.spelled else float("inf")
        if isinstance(tree, Concatenation):
            return sum(map(self.shortest, tree.parts))
        if isinstance(tree, Alternation):
            return min(map(self.shortest, tree.options), default=float("inf"))
        if isinstance(tree, Repetition):
            return tree.min and tree.min * self.shortest(tree.body)
        assert isinstance(tree, Call)
        return self.least[tree.rule]

    def closure(self, stacks: Iterable[Stack]) -> Stacks:
        """The stacks that have a byte on top, or are empty."""
        seen, work = set[Stack](), list(stacks)
        while work:
            stack = work.pop()
            if stack in seen:
                continue
            seen.add(stack)
            top, rest = stack[:1], stack[1:]
            if top and not isinstance(top[0], ByteSet):
                opened = filter(self.can_be_read, self._opened(top[0]))
                work += [(*parts, *rest) for parts in opened]
        return frozenset(s for s in seen if not s or isinstance(s[0], ByteSet))

    def can_be_read(self, parts: Stack) -> bool:
        return sum(map(self.shortest, parts)) < float("inf")

    def _opened(self, tree: Expression) -> list[Stack]:
        if isinstance(tree, Concatenation):
            return [tree.parts]
        if isinstance(tree, Alternation):
            return [(option,) for option in tree.options]
        if isinstance(tree, Call):
            return [(self.rules.rules[tree.rule],)]
        assert isinstance(tree, Repetition)
        most = None if tree.max is None else tree.max - 1
        more = (tree.body, Repetition(tree.body, max(tree.min - 1, 0), most))
        return [more] * (tree.max != 0) + [()] * (tree.min == 0)

    def _next(self, stacks: Stacks, byte: int) -> Stacks:
        """The stacks after one more byte, none where it is illegal."""
        return self.closure(s[1:] for s in stacks if byte in self._top(s))

    def bytes_from(self, stacks: Stacks) -> set[int]:
        """The bytes that may come next."""
        return {byte for stack in stacks for byte in self._top(stack)}

    def _top(self, stack: Stack) -> frozenset[int]:
        top = stack[0] if stack else EMPTY_TEXT
        return top.allowed & self.spelled if isinstance(top, ByteSet) else frozenset()

    def after(self, data: bytes) -> Stacks:
        """The stacks after a text; () is one of them where it may end."""
        stacks = self.start
        for byte in data:
            stacks = self.next(stacks, byte)
        return stacks


def texts_of(rules: Rules, longest: int) -> tuple[set[bytes], set[bytes]]:
    """All texts up to a length, and all prefixes, by the simulator."""
    simulator = Simulator(rules)
    level, texts, prefixes = {b"": simulator.start}, set[bytes](), set[bytes]()
    for _ in range(longest + 1):
        level = {data: stacks for data, stacks in level.items() if stacks}
        prefixes |= level.keys()
        texts |= {data for data, stacks in level.items() if () in stacks}
        level = {
            data + bytes((byte,)): simulator.next(stacks, byte)
            for data, stacks in level.items()
            for byte in simulator.bytes_from(stacks)
        }
    return texts, prefixes


def goes_on_into_what_follows(
    rules: Rules, spelled: Iterable[int] = range(256), longest: int = 5
) -> bool:
    """Return whether a rule can end and also go on with a byte that may follow it.

    Looks at texts of the rule up to `longest` bytes.
    """
    reader = Simulator(rules, spelled)

    def first(parts: Stack) -> set[int]:
        return reader.bytes_from(reader.closure([parts] * reader.can_be_read(parts)))

    follow: dict[str, set[int]] = {name: set() for name in rules.rules}

    def visit(tree: Expression, then: set[int]) -> None:
        if isinstance(tree, Call):
            follow[tree.rule] |= then
        elif isinstance(tree, Alternation):
            for option in tree.options:
                visit(option, then)
        elif isinstance(tree, Repetition):
            visit(tree.body, then | first((tree.body,)))
        elif isinstance(tree, Concatenation):
            for i, part in enumerate(tree.parts):
                rest = tree.parts[i + 1 :]
                empty = not sum(map(reader.shortest, rest))
                visit(part, first(rest) | (then if empty else set()))

    for _ in range(len(rules.rules) + 1):
        visit(rules.start, set())
        for name, body in rules.rules.items():
            visit(body, follow[name])
    return any(
        follow[name] & _goes_on(reader, reader.closure([(Call(name),)]), longest)
        for name in rules.rules
        if reader.least[name] < float("inf")
    )


def _goes_on(reader: Simulator, start: Stacks, longest: int) -> set[int]:
    """The bytes that may follow a text of one rule and still belong to it."""
    found, seen, level = set[int](), set[Stacks](), {start}
    for _ in range(longest):
        level = {reader.next(s, b) for s in level for b in reader.bytes_from(s)} - seen
        seen |= level
        found |= {b for s in level if () in s for b in reader.bytes_from(s)}
    return found


NAMES = "PQRS"
LETTERS = st.sampled_from(["a", "b", "c", "ab", "bc"]).map(
    lambda letters: ByteSet(frozenset(letters.encode()))
)


def trees(names: str) -> st.SearchStrategy[Expression]:
    """Small trees over a, b and c that call these rules."""
    leaves: st.SearchStrategy[Expression] = LETTERS | st.just(EMPTY_TEXT)
    if names:
        leaves |= st.sampled_from(names).map(Call)

    def larger(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        parts = st.lists(inner, min_size=2, max_size=3).map(tuple)
        bounds = st.sampled_from([(0, 1), (0, None), (1, None), (1, 2), (0, 2)])
        repeated = st.builds(lambda tree, n: Repetition(tree, *n), inner, bounds)
        return parts.map(Concatenation) | parts.map(Alternation) | repeated

    return st.recursive(leaves, larger, max_leaves=5)


@st.composite
def random_rules(draw: st.DrawFn) -> Rules:
    """One to four rules that call each other; most begin and end with a letter."""
    names = NAMES[: draw(st.integers(1, 4))]
    rules: dict[str, Expression] = {}
    for name in names:
        tree = draw(trees(names))
        before, behind = draw(LETTERS), draw(LETTERS)
        shape = draw(st.sampled_from([(tree,), (before, tree), (before, tree, behind)]))
        simple = draw(LETTERS)
        rules[name] = Alternation(
            (Concatenation(shape), simple)[: draw(st.integers(1, 2))]
        )
    return Rules(draw(trees(names)), rules)
