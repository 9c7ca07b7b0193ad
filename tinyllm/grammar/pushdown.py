"""A state of a text: a DFA state, and the stack of calls to return to.

Public: Pushdown, State, Frame.

A byte that begins a call puts a frame on the stack: the DFA state to return to, and how
often the rule must and may be read once more before that. Frames are shared and never
changed, so a state is a value: undo, fork and rewind cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple
from weakref import WeakValueDictionary

from tinyllm.grammar.expression import Rules
from tinyllm.grammar.network import FAR
from tinyllm.grammar.states import DFAState, Move, Pending, States, fewer


class Frame:
    """A call that is not over, and the frame below it.

    state: the DFA state to return to. The rule has to be read min_left times more, and
    may be read max_left times, before that; one reading takes at least `unit` bytes.
    needed: the fewest bytes from the end of this reading to the end of the text.
    """

    __slots__ = ("__weakref__", "below", "needed", "pending", "state")

    def __init__(self, pending: Pending, below: Frame | None) -> None:
        self.pending, self.below, self.state = pending, below, pending.state
        here = pending.state.needed + pending.min_left * pending.unit
        self.needed: int = here + (below.needed if below else 0)


class State(NamedTuple):
    """A state of a text: a DFA state and the calls that are not over."""

    dfa: DFAState
    frame: Frame | None = None


class Pushdown(States):
    """The deterministic machine of some rules: DFA states, and states with a stack."""

    def __init__(
        self, rules: Rules, alphabet: Iterable[int], alone: Iterable[int]
    ) -> None:
        super().__init__(rules, alphabet, alone)
        self._frames: WeakValueDictionary[tuple[Pending, int], Frame] = (
            WeakValueDictionary()
        )
        self.start = State(self.first)
        self.ground = Frame(Pending(self.dead, 0, FAR - 1, 0), None)

    def next(self, state: State, byte: int) -> State | None:
        """Return the state after one byte, None where it is illegal."""
        for dfa, frame in self._levels(state):
            move = self.moves(dfa).get(byte)
            if move is not None and self._allows(move, frame):
                return self._after(move, frame)
        return None

    def may_end(self, state: State) -> bool:
        """Return whether the text is complete: every call that is not over may end."""
        return any(frame is None and dfa.final for dfa, frame in self._levels(state))

    def legal_bytes(self, state: State) -> frozenset[int]:
        """Return the bytes that may come next."""
        return frozenset(
            byte
            for dfa, frame in self._levels(state)
            for byte, move in self.moves(dfa).items()
            if self._allows(move, frame)
        )

    def loop(self, state: State) -> tuple[frozenset[int], bool]:
        """Return many bytes that lead from a state to itself, but for what is counted.

        The bool says whether each of them begins the body of a repetition again.
        """
        loops: tuple[list[int], list[int]] = [], []
        for byte, (target, calls, again) in self.moves(state.dfa).items():
            if target is state.dfa and not calls:
                loops[again].append(byte)
        again = len(loops[1]) > len(loops[0]) and state.frame is self.ground
        return frozenset(loops[again]), again

    def accepts(self, data: bytes) -> bool:
        """Return whether these bytes are a whole text."""
        state: State | None = self.start
        for byte in data:
            state = state and self.next(state, byte)
        return state is not None and self.may_end(state)

    def grounded(self, state: State) -> tuple[State, int]:
        """Return the state with its stack on the ground, and what was counted there.

        A state on the ground does not know what it returns to, nor a bound: it counts
        how often the body of its repetition begins again.
        """
        above, frame = list[Pending](), state.frame
        while frame is not None and frame.below is not None:
            above.append(frame.pending)
            frame = frame.below
        if frame is None or frame is self.ground or frame.state is not self.dead:
            return state, 0
        stack: Frame | None = self.ground
        for pending in reversed(above):
            stack = self.frame(pending, stack)
        return State(state.dfa, stack), 1

    def knows(self, state: State) -> bool:
        """Return whether a state is one of this machine, and not the dead one."""
        dfa, frame = state
        known = isinstance(dfa, DFAState) and self._known.get(dfa.positions) is dfa
        return known and dfa is not self.dead and isinstance(frame, Frame | None)

    def least(self, state: State) -> int:
        """Return the number of bytes of the shortest completion."""
        return state.dfa.needed + (state.frame.needed if state.frame else 0)

    def rest(self, state: State) -> bytes:
        """Return a shortest text from a state to the end."""
        text = bytearray()
        while self.least(state):
            dfa, frame = state
            while not dfa.needed and frame and not frame.pending.min_left:
                dfa, frame = frame.state, frame.below
            byte = self.nearest(dfa, again=not dfa.needed)
            text.append(byte)
            state = self._after(self.moves(dfa)[byte], frame)
        return bytes(text)

    def frame(self, pending: Pending, below: Frame | None) -> Frame | None:
        """Return the one frame of a call above that frame.

        A return to where the rule ends at once is a return to the frame below.
        """
        state, last = pending.state, not (pending.min_left or pending.max_left)
        if last and state.final and not self.moves(state):
            return below
        key = (pending, id(below))
        frame = self._frames.get(key)
        if frame is None:
            frame = self._frames[key] = Frame(pending, below)
        return frame

    def _levels(self, state: State) -> Iterator[State]:
        """Yield a state and, as long as the rule above may end, what it returns to."""
        yield state
        dfa, frame = state
        while frame is not None and dfa.final and not frame.pending.min_left:
            dfa, frame = frame.state, frame.below
            yield State(dfa, frame)

    def _allows(self, move: Move, frame: Frame | None) -> bool:
        """Return whether the bound of a repetition lets its body begin again."""
        return not move.again or (frame is not None and frame.pending.max_left > 0)

    def _after(self, move: Move, frame: Frame | None) -> State:
        """Return the state after a move: the one step of the stack machine."""
        if move.again and frame is not None:
            call = frame.pending
            left = fewer(call.min_left), fewer(call.max_left)
            frame = self.frame(Pending(call.state, *left, call.unit), frame.below)
        for pending in move.calls:
            frame = self.frame(pending, frame)
        return State(move.target, frame)
