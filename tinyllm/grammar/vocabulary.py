"""The tokens of a vocabulary as a trie of their bytes, walked by a machine.

Public: Vocabulary, Found.

All tokens that are legal in a state are found at once: level by level, numpy arrays
have every prefix that is still alive and the state it leads to. A prefix that dies
takes all its tokens with it.

Before: grammar.pushdown. Next: grammar.mask.
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

    `exits` (M,) are the trie nodes after which the rule of that state may have ended:
    the caller's state decides what follows them. `ticks` (N,) and `exit_ticks` (M,) say
    how often the body of a counted repetition, of which the walk began inside, has
    begun again on the way.
    """

    token: Ints
    number: Ints
    ticks: Ints
    exits: Ints
    exit_ticks: Ints
    states: list[State]


class _Live(NamedTuple):
    """Trie nodes, the number of a state for each, and its ticks (all (N,))."""

    node: Ints
    number: Ints
    ticks: Ints


class _Steps:
    """The states of one walk by number: 0 is none, 1 the one with which it began."""

    def __init__(self, machine: Pushdown, start: State) -> None:
        self.machine = machine
        self.states = [State(machine.dead), start]
        self._numbers: dict[State | None, int] = {None: 0, start: 1}
        self._after = np.full((8, 256), -1, np.int64)  # -1 until it is asked for
        self._ticks = np.zeros((8, 256), np.int64)

    def read(self, live: _Live, data: npt.NDArray[np.uint8]) -> _Live:
        """Return what is still alive after a byte each (N,)."""
        node, number, ticks = live
        after = self._after[number, data]  # (N,)
        if (new := np.flatnonzero(after < 0)).size:
            pairs = np.zeros(256 * len(self.states), np.bool_)
            pairs[256 * number[new] + data[new]] = True
            for pair in np.flatnonzero(pairs).tolist():
                self.one(*divmod(pair, 256))
            after = self._after[number, data]
        ticks = ticks + self._ticks[number, data]
        alive = np.flatnonzero(after)
        return _Live(node[alive], after[alive], ticks[alive])

    def one(self, number: int, byte: int) -> tuple[int, int]:
        """Return the state after one byte, 0 where it is illegal, and the ticks."""
        state, ticks = self.machine.step(self.states[number], byte)
        after = self._numbers.setdefault(state, len(self.states))
        if state is not None and after == len(self.states):
            self.states.append(state)
            if after == len(self._after):
                unknown = np.full_like(self._after, -1)
                self._after = np.concatenate((self._after, unknown))
                self._ticks = np.concatenate((self._ticks, np.zeros_like(unknown)))
        self._after[number, byte], self._ticks[number, byte] = after, ticks
        return after, ticks


class _Loop(NamedTuple):
    """The prefixes of some bytes alone, and those one byte beyond."""

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
        legal = machine.legal_bytes(state)
        loop, tick = machine.loop(state) if len(legal) >= MOST else (frozenset(), 0)
        live = None
        if nodes is None and len(legal) <= FEW:
            live = self._one_by_one(steps, legal)
        elif nodes is None and len(loop) >= MOST:
            live = self._around(steps, loop, tick)
        if live is None:
            begin = np.zeros(1, np.int64) if nodes is None else nodes
            live = self._from(steps, begin, legal)
        place, token = _spread(
            self._first_token[live.node], self._n_tokens[live.node]
        )  # (N,)
        # A call that may be over returns, and what it returns to may be over, too.
        may_leave = [
            any(frame is machine.ground and dfa.final for dfa, frame in levels)
            for levels in map(machine.levels, steps.states)
        ]
        leaves = np.flatnonzero(np.array(may_leave)[live.number])  # (M,)
        return Found(
            self._tokens[token],
            live.number[place],
            live.ticks[place],
            live.node[leaves],
            live.ticks[leaves],
            steps.states,
        )

    def _around(self, steps: _Steps, loop: frozenset[int], tick: int) -> _Live:
        """Return what is alive where many bytes lead from state 1 to itself."""
        inside, border = self._loop_of(loop)
        first = _Live(inside, np.ones_like(inside), self._depth[inside] * tick)
        before = (self._depth[border] - 1) * tick
        return self._levels(steps, first, _Live(border, np.ones_like(border), before))

    def _from(self, steps: _Steps, node: Ints, legal: frozenset[int]) -> _Live:
        """Return what is alive of the prefixes that go on from some, in state 1."""
        first = _Live(node, np.ones_like(node), np.zeros_like(node))
        if len(legal) > FEW or len(node) < MANY:
            return self._levels(steps, first, self._below(first))
        begun = np.zeros(len(self._byte), np.bool_)  # (nodes,)
        begun[node] = True
        child = np.concatenate([self._with_byte[byte] for byte in legal] or [node[:0]])
        child = child[begun[self._parent[child]]]
        reading = _Live(child, np.ones_like(child), np.zeros_like(child))
        return self._levels(steps, first, reading)

    def _levels(self, steps: _Steps, first: _Live, reading: _Live) -> _Live:
        """Return the first ones and what is alive of the others, level by level.

        reading: nodes whose bytes are to be read, with the states before these.
        """
        parts = [first]
        while len(reading.node):
            parts.append(steps.read(reading, self._byte[reading.node]))
            reading = self._below(parts[-1])
        return _Live(*map(np.concatenate, zip(*parts, strict=True)))

    def _below(self, live: _Live) -> _Live:
        """Return the children of nodes, with the states of their parents."""
        parent, child = _spread(
            self._first_child[live.node], self._n_children[live.node]
        )
        return _Live(child, live.number[parent], live.ticks[parent])

    def _loop_of(self, loop: frozenset[int]) -> _Loop:
        """Return the prefixes of these bytes alone, remembered for a few sets."""
        if loop not in self._loops:
            if len(self._loops) >= MAX_LOOPS:
                del self._loops[next(iter(self._loops))]
            legal = np.zeros(256, np.bool_)
            legal[list(loop)] = True
            inside = np.ones(len(self._byte), np.bool_)  # (nodes,)
            for level in self._levels_of_nodes:
                inside[level] = inside[self._parent[level]] & legal[self._byte[level]]
            border = np.flatnonzero(inside[self._parent] & ~inside)
            self._loops[loop] = _Loop(np.flatnonzero(inside), border)
        return self._loops[loop]

    def _one_by_one(self, steps: _Steps, legal: frozenset[int]) -> _Live | None:
        """Return the same in plain Python, quicker for few prefixes; None for many."""
        live, n_seen = [(0, 1, 0)], 0
        nodes: Sequence[int] = [self._roots[b] for b in legal if b in self._roots]
        for node, number, ticks in live:  # grows while it is walked
            if node:
                begin = self._children[node]
                nodes = range(begin, begin + self._child_counts[node])
            n_seen += len(nodes)
            if n_seen >= MANY:
                return None
            for child in nodes:
                after, tick = steps.one(number, self._bytes[child])
                if after:
                    live.append((child, after, ticks + tick))
        return _Live(*np.array(live, np.int64).T)

    def _order(self, token_id: int) -> bytes:
        return self.token_bytes[token_id]

    def _build(self, tokens: list[int]) -> None:
        """Make the trie of the tokens, which are in the order of their bytes."""
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
        sizes = [1, *(level.stop - level.start for level in self._levels_of_nodes)]
        self._depth = np.repeat(np.arange(len(sizes)), sizes)  # (nodes,)
        by_byte = 1 + np.argsort(self._byte[1:], kind="stable")  # all but the root
        ends = np.searchsorted(self._byte[by_byte], np.arange(1, 256))
        self._with_byte = np.split(by_byte, ends)  # 256 arrays of nodes
        self._loops: dict[frozenset[int], _Loop] = {}
        # the same as lists, for walks that are too short for numpy
        self._bytes = self._byte.tolist()
        self._children = self._first_child.tolist()
        self._child_counts = self._n_children.tolist()
        self._roots = {self._bytes[i]: i for i in range(1, 1 + self._child_counts[0])}


def _shared_prefix(spellings: list[bytes]) -> Ints:
    """Return how many leading bytes each spelling shares with the one before."""
    shared = [0] * len(spellings)
    for i, (before, data) in enumerate(pairwise(spellings), 1):
        limit = min(len(before), len(data))
        while shared[i] < limit and before[shared[i]] == data[shared[i]]:
            shared[i] += 1
    return np.array(shared, np.int64)


def _groups(owners: list[Ints], n_nodes: int, first: int) -> tuple[Ints, Ints]:
    """Return how many members each owner has, and the index of its first one."""
    flat = np.concatenate(owners) if owners else np.zeros(0, np.int64)
    count = np.bincount(flat, minlength=n_nodes).astype(np.int64)  # (nodes,)
    return count, first + np.cumsum(count) - count


def _spread(first: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Return all members of several groups: the group of each, and the member.

    first [5, 9], count [2, 1] gives groups [0, 0, 1] and members [5, 6, 9].
    """
    group = np.repeat(np.arange(len(count)), count)
    begins = np.cumsum(count) - count
    return group, np.arange(len(group)) + (first - begins)[group]
