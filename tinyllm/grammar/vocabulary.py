"""The tokens of a vocabulary as a trie of their bytes, walked by a machine.

Public: Vocabulary, Found.

All tokens that are legal in a state are found at once: level by level, the numpy arrays
hold every prefix that is still alive and where it leads. A prefix that dies
takes all its tokens with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tinyllm.engine import Tokens
from tinyllm.grammar.pushdown import Pushdown, State

Ints = npt.NDArray[np.int64]
FEW, MANY = 16, 400  # first bytes and prefixes for which plain Python is tried
MOST = 32  # bytes that change nothing, as in a string, from which on that is used
PLAIN = frozenset(range(0x20, 0x80)) - {0x22, 0x5C}  # what a JSON string loops over
MAX_LOOPS = 8  # sets of such bytes whose tokens are remembered


class Found(NamedTuple):
    """Legal tokens of a state (N,), and by number (N,) the states to which they lead.

    `exits` are the prefixes after which the rule of that state can have ended: the
    caller's state decides what follows them.
    """

    token: Ints
    number: Ints
    exits: Ints
    states: list[State]


class _Steps:
    """The states of one walk by number: 0 is none, 1 the one with which it began."""

    def __init__(self, machine: Pushdown, start: State) -> None:
        self.machine = machine
        self.states = [State(machine.dead), start]
        self._numbers = {start: 1}
        self._after = np.full((8, 256), -1, np.int64)  # -1 until it is asked for
        self.exits = np.zeros(8, np.bool_)
        self.exits[1] = machine.leaves(start)

    def step(self, number: Ints, data: npt.NDArray[np.uint8]) -> Ints:
        """Return the states after a byte each, 0 where it is illegal: all (N,)."""
        after = self._after[number, data]  # (N,)
        if (new := np.flatnonzero(after < 0)).size:
            pairs = np.zeros(256 * len(self.states), np.bool_)
            pairs[256 * number[new] + data[new]] = True
            for pair in np.flatnonzero(pairs).tolist():
                self.one(*divmod(pair, 256))
            after = self._after[number, data]
        return after

    def one(self, number: int, byte: int) -> int:
        """Return the state after one byte, 0 where it is illegal."""
        state = self.machine.next(self.states[number], byte)
        after = 0 if state is None else self._numbers.get(state) or self._add(state)
        self._after[number, byte] = after
        return after

    def _add(self, state: State) -> int:
        number = self._numbers[state] = len(self.states)
        self.states.append(state)
        if number == len(self.exits):
            unknown = np.full_like(self._after, -1)
            self._after = np.concatenate((self._after, unknown))
            self.exits = np.concatenate((self.exits, np.zeros_like(self.exits)))
        self.exits[number] = self.machine.leaves(state)
        return number


class _Loop(NamedTuple):
    """Tokens and prefixes of some bytes alone, and the prefixes one byte beyond."""

    tokens: Ints
    inside: Ints
    border: Ints


class Vocabulary:
    """The bytes of each ordinary token, and the trie of them all.

    Nodes are numbered level by level from the root 0; the children of a node, and the
    tokens that end at a node, are contiguous. Special ids and tokens without bytes are
    not in the trie, whatever their text says.
    """

    def __init__(self, tokenizer: Tokens) -> None:
        self.size = tokenizer.vocab_size
        ids = range(self.size)
        self.eos_ids = sorted(i for i in tokenizer.eos_ids if i in ids)
        silent = tokenizer.special_ids | tokenizer.eos_ids
        self.token_bytes = [
            b"" if i in silent else tokenizer.token_bytes(i) for i in ids
        ]
        self.alphabet = frozenset(b for data in self.token_bytes for b in data)
        self.longest = max(map(len, self.token_bytes), default=0)
        self.alone = frozenset(data[0] for data in self.token_bytes if len(data) == 1)
        # of tokens that have the same bytes, the first
        self.ids = {
            self.token_bytes[i]: i for i in reversed(ids) if self.token_bytes[i]
        }
        self._build(sorted((i for i in ids if self.token_bytes[i]), key=self._order))
        self._loop_of(PLAIN & self.alphabet)

    def walk(self, machine: Pushdown, state: State, nodes: Ints | None = None) -> Found:
        """Return every token that is legal in a state, and where it leads.

        nodes (N,): the prefixes that have been read already, by default the empty one.
        """
        steps = _Steps(machine, state)
        if nodes is not None:
            return self._walk_from(steps, nodes)
        legal = machine.legal_bytes(state)
        if len(legal) <= FEW and (found := self._walk_one_by_one(steps, legal)):
            return found
        loop = machine.loop(state) & legal
        if len(loop) < MOST:
            return self._walk_from(steps, np.zeros(1, np.int64))
        return self._walk_around(steps, self._loop_of(loop))

    def _walk_from(self, steps: _Steps, node: Ints) -> Found:
        """Return the tokens that go on from prefixes (N,), all in the first state."""
        first = Found(*_nothing(), node if steps.exits[1] else node[:0], steps.states)
        parent, child = _spread(self._first_child[node], self._n_children[node])
        return self._levels(steps, np.ones_like(parent), child, first)

    def _walk_around(self, steps: _Steps, loop: _Loop) -> Found:
        """Return the tokens from a state in which many bytes change nothing."""
        exits = loop.inside if steps.exits[1] else loop.inside[:0]
        first = Found(loop.tokens, np.ones_like(loop.tokens), exits, steps.states)
        return self._levels(steps, np.ones_like(loop.border), loop.border, first)

    def _levels(self, steps: _Steps, number: Ints, node: Ints, first: Found) -> Found:
        """Return what was found first, and all from nodes (N,) on, level by level.

        number (N,): the states before the bytes of these nodes.
        """
        parts = [first[:3]]
        while len(node):
            number = steps.step(number, self._byte[node])
            live = np.flatnonzero(number)
            node, number = node[live], number[live]
            place, token = _spread(self._first_token[node], self._n_tokens[node])
            exits = node[steps.exits[number]]
            parts.append((self._tokens[token], number[place], exits))
            parent, node = _spread(self._first_child[node], self._n_children[node])
            number = number[parent]
        token, number, exits = map(np.concatenate, zip(*parts, strict=True))
        return Found(token, number, exits, steps.states)

    def _loop_of(self, loop: frozenset[int]) -> _Loop:
        """The prefixes and tokens of these bytes alone, remembered for a few sets."""
        if loop not in self._loops:
            if len(self._loops) >= MAX_LOOPS:
                del self._loops[next(iter(self._loops))]
            legal = np.zeros(256, np.bool_)
            legal[list(loop)] = True
            inside = np.ones(len(self._byte), np.bool_)  # (nodes,)
            for level in self._levels_of_nodes:
                inside[level] = inside[self._parent[level]] & legal[self._byte[level]]
            border = np.flatnonzero(inside[self._parent] & ~inside)
            tokens = self._tokens[inside[self._node_of_token]]
            self._loops[loop] = _Loop(tokens, np.flatnonzero(inside), border)
        return self._loops[loop]

    def _walk_one_by_one(self, steps: _Steps, legal: frozenset[int]) -> Found | None:
        """Return the same in plain Python, quicker for few prefixes; None for many."""
        found, exits = list[tuple[int, int]](), list[int]()
        children = [self._roots[byte] for byte in legal if byte in self._roots]
        work: list[tuple[int, int, Sequence[int]]] = [(0, 1, children)]
        n_seen = 0
        while work and n_seen < MANY:
            node, number, nodes = work.pop()
            if steps.exits[number]:
                exits.append(node)
            n_seen += len(nodes)
            for child in nodes:
                after = steps.one(number, self._bytes[child])
                if after:
                    begin = self._children[child]
                    below = range(begin, begin + self._child_counts[child])
                    work.append((child, after, below))
                    found += [(token, after) for token in self._at.get(child, ())]
        if work:
            return None
        columns = np.array(found, np.int64).reshape(-1, 2).T  # (2, N)
        return Found(columns[0], columns[1], np.array(exits, np.int64), steps.states)

    def _order(self, token_id: int) -> bytes:
        return self.token_bytes[token_id]

    def _build(self, tokens: list[int]) -> None:
        """The trie from the tokens in the order of their bytes."""
        spellings = [self.token_bytes[i] for i in tokens]
        lengths = np.array([len(data) for data in spellings], np.int64)  # (V,)
        shared = _shared_prefix(spellings)  # (V,)
        node_of = np.zeros(len(tokens), np.int64)  # (V,) node of the prefix so far
        parents, byte, ends = [], [0], np.zeros(len(tokens), np.int64)
        self._levels_of_nodes: list[slice] = []
        n_nodes = 1
        for depth in range(int(lengths.max(initial=0))):
            longer = lengths > depth
            new = longer & (shared <= depth)
            parents.append(node_of[new])
            byte += [spellings[i][depth] for i in np.flatnonzero(new).tolist()]
            node_of = np.where(longer, n_nodes - 1 + np.cumsum(new), node_of)  # (V,)
            self._levels_of_nodes.append(slice(n_nodes, n_nodes + int(new.sum())))
            n_nodes += int(new.sum())
            ends[lengths == depth + 1] = node_of[lengths == depth + 1]
        order = np.argsort(ends, kind="stable")
        self._tokens = np.array(tokens, np.int64)[order]  # (V,)
        self._byte = np.array(byte, np.uint8)  # (nodes,)
        self._n_children, self._first_child = _groups(parents, n_nodes, first=1)
        self._n_tokens, self._first_token = _groups([ends], n_nodes, first=0)
        self._parent = np.concatenate([np.zeros(1, np.int64), *parents])  # (nodes,)
        self._node_of_token = ends[order]  # (V,)
        self._loops: dict[frozenset[int], _Loop] = {}
        # the same as lists, for walks that are too short for numpy
        self._bytes = self._byte.tolist()
        self._children = self._first_child.tolist()
        self._child_counts = self._n_children.tolist()
        self._roots = {self._bytes[i]: i for i in range(1, 1 + self._child_counts[0])}
        self._at: dict[int, list[int]] = {}
        for token, end in zip(
            self._tokens.tolist(), self._node_of_token.tolist(), strict=True
        ):
            self._at.setdefault(end, []).append(token)


def _nothing() -> tuple[Ints, Ints]:
    return np.zeros(0, np.int64), np.zeros(0, np.int64)


def _shared_prefix(spellings: list[bytes]) -> Ints:
    """How many leading bytes each spelling has in common with the one before."""
    shared = [0] * len(spellings)
    for i, (before, data) in enumerate(pairwise(spellings), 1):
        limit = min(len(before), len(data))
        while shared[i] < limit and before[shared[i]] == data[shared[i]]:
            shared[i] += 1
    return np.array(shared, np.int64)


def _groups(owners: list[Ints], n_nodes: int, first: int) -> tuple[Ints, Ints]:
    """How many members each owner has, and where its first one stands."""
    flat = np.concatenate(owners) if owners else np.zeros(0, np.int64)
    count = np.bincount(flat, minlength=n_nodes).astype(np.int64)  # (nodes,)
    return count, first + np.cumsum(count) - count


def _spread(first: Ints, count: Ints) -> tuple[Ints, Ints]:
    """All members of several groups: which group each is of, and the member.

    first [5, 9], count [2, 1] gives groups [0, 0, 1] and members [5, 6, 9].
    """
    group = np.repeat(np.arange(len(count)), count)
    begins = np.cumsum(count) - count
    return group, np.arange(len(group)) + (first - begins)[group]
