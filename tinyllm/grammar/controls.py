"""A network of rules made deterministic, one control at a time.

Public: Controls, Entry.

A control is a set of places in one rule, as a state of a deterministic automaton is a
set of nodes (automaton.py). A byte leads from one control to another, or begins a call.
Where it could begin two calls, or a call and something else, these are opened in place:
a place then holds where they return to.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tinyllm.grammar.expression import Rules
from tinyllm.grammar.lazy import DEAD, Lazy
from tinyllm.grammar.network import FAR, Network

MAX_OPEN = 24  # calls opened in place, one inside the other
MAX_ALIKE = 2048  # places inside such calls that one byte leads to

Place = tuple[int, tuple[int, ...]]  # a node, and where the calls opened here return to
Effect = list[tuple[str, Place]]  # what a byte leads to: directly (""), or by a call
Entry = tuple[int, tuple[int, ...]]  # of a call: the control inside, the returns


class Controls(Lazy[Place]):
    """The controls of some rules by number, made as far as they are asked for.

    Bytes outside `spelled` are never legal; those that are tokens `alone` are enough
    to complete any text, if the network says so. `table` (controls, 256) holds the next
    control, DEAD, or for a call minus the number of an entry in `calls`: the control
    inside, and where to return to, the outermost first.
    """

    def __init__(
        self, rules: Rules, spelled: Iterable[int], alone: Iterable[int]
    ) -> None:
        self.network = Network(rules, spelled, alone)
        self._calls: dict[Entry, int] = {}
        self._rules = set[str]()  # whose first row is made
        self.calls: list[Entry] = [(DEAD, ())]
        self.final: list[bool] = []  # may the rule end here
        self.finals = np.zeros(64, np.bool_)  # the same as an array
        self.needed: list[int] = []  # the least bytes to the end of the rule
        super().__init__()
        self.first = self._state([(Network.ENTRY, ())])

    def rest(self, control: int) -> bytes:
        """A shortest text from a control to the end of its rule."""
        text = bytearray()
        returns: list[int] = []
        while True:
            while self.needed[control]:
                byte, control = self._nearest(control, returns)
                text.append(byte)
            if not returns:
                return bytes(text)
            control = returns.pop()

    def _nearest(self, control: int, returns: list[int]) -> tuple[int, int]:
        """A byte after which the least is needed, and the control it leads to."""
        best: tuple[int, int, int, tuple[int, ...]] = (FAR, 0, DEAD, ())
        for byte, move in self.moves(control).items():
            if byte not in self.network.cheap:
                continue
            to, backs = self.calls[-move] if move < 0 else (move, ())
            found = self.needed[to] + sum(self.needed[back] for back in backs)
            best = min(best, (found, byte, to, backs))
        returns += best[3]
        return best[1], best[2]

    def _row(self, state: int) -> dict[int, int]:
        """Make the row of a control: bytes with the same effect are worked out once."""
        effects: dict[int, Effect] = {}
        for node, back in self._sets[state]:
            for allowed, to in self.network.edges[node]:
                self._count(len(allowed))
                for byte in allowed:
                    effects.setdefault(byte, []).append(("", (to, back)))
            for name, to in self.network.calls[node]:
                self._count(len(self.network.first[name]))
                for byte in self.network.first[name]:
                    effects.setdefault(byte, []).append((name, (to, back)))
        known: dict[tuple[tuple[str, Place], ...], int] = {}
        moves = {}
        for byte, effect in effects.items():
            move = self._move(byte, effect, known)
            if move != DEAD:
                moves[byte] = move
        return moves

    def _move(
        self, byte: int, effect: Effect, known: dict[tuple[tuple[str, Place], ...], int]
    ) -> int:
        """The entry of the table for a byte with these effects."""
        names = {name for name, _ in effect}
        opened = [len(back) for _, (_, back) in effect if back]
        if len(names) > 1 and (
            max(opened, default=0) >= MAX_OPEN or len(opened) > MAX_ALIKE
        ):
            name = min(names)  # narrower than the grammar, never wider
            effect, names = [e for e in effect if e[0] == name], {name}
        if names == {""}:
            key = tuple(effect)
            if key not in known:
                known[key] = self._state(place for _, place in effect)
            return known[key]
        if len(names) == 1:
            return self._call(names.pop(), byte, [place for _, place in effect])
        return self._state(self._opened(byte, effect))

    def _call(self, name: str, byte: int, after: list[Place]) -> int:
        """Minus the number of the call that this byte begins, DEAD if none can."""
        back = self._state(after)
        move = self.moves(self._inside(name)).get(byte, DEAD)
        if back == DEAD or move == DEAD:
            return DEAD
        inner: Entry = self.calls[-move] if move < 0 else (move, ())
        entry = (inner[0], (back, *inner[1]))
        if entry not in self._calls:
            self._calls[entry] = len(self.calls)
            self.calls.append(entry)
        return -self._calls[entry]

    def _inside(self, name: str) -> int:
        """The control at the start of a rule; without recursion, however deep it calls.

        The rows of the rules that it may begin with are made before its own.
        """
        work = [name]
        while True:
            rule = work[-1]
            inside = self._state([(self.network.starts[rule], ())])
            if self._moves[inside] is None:
                unknown = [n for n in self.network.begins[rule] if n not in self._rules]
                work += unknown
                if unknown:
                    continue
                self._expand(inside)
            self._rules.add(work.pop())
            if not work:
                return inside

    def _opened(self, byte: int, effect: Effect) -> Iterable[Place]:
        """The places after a byte, with every call that it begins opened in place."""
        work, seen = list(effect), set[tuple[str, Place]]()
        while work:
            item = work.pop()
            if item in seen:
                continue
            seen.add(item)
            name, (to, back) = item
            if not name:
                yield to, back
                continue
            for node, open_ in self._closure(
                [(self.network.starts[name], (to, *back))]
            ):
                for allowed, after in self.network.edges[node]:
                    work += [("", (after, open_))] if byte in allowed else []
                for called, after in self.network.calls[node]:
                    begins = byte in self.network.first[called]
                    work += [(called, (after, open_))] if begins else []

    def _closure(self, items: Iterable[Place]) -> frozenset[Place]:
        """The places that tell two controls apart: something to read, or an end."""
        network, seen = self.network, set[Place]()
        work = list(items)
        while work:
            place = work.pop()
            node, back = place
            if place in seen or network.needed[node] >= FAR:
                continue
            seen.add(place)
            work += [(to, back) for to in network.graph.free[node]]
            if back and node in network.is_end:
                work.append((back[0], back[1:]))
            for name, to in network.calls[node]:
                work += [(to, back)] if name in network.nullable else []
        self._count(len(seen))
        return frozenset(
            (node, back)
            for node, back in seen
            if network.edges[node]
            or network.calls[node]
            or (node in network.is_end and not back)
        )

    def _added(self, closure: frozenset[Place]) -> None:
        needed, is_end = self.network.needed, self.network.is_end
        if len(self.final) == len(self.finals):
            self.finals = np.concatenate((self.finals, np.zeros_like(self.finals)))
        final = any(n in is_end and not back for n, back in closure)
        self.finals[len(self.final)] = final
        self.final.append(final)
        self.needed.append(
            min((needed[n] + sum(needed[b] for b in back) for n, back in closure),
                default=FAR)
        )  # fmt: skip
