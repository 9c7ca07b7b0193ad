"""A state of a text: a DFA state, and the stack of calls to return to.

Public: Pushdown, State, Frame.

A byte that begins a call puts a frame on the stack: the DFA state to return to, and how
often the rule must and may be read once more before that. Frames are shared and never
changed, so a state is a value: undo, fork and rewind cost nothing.

Before: grammar.states. Next: grammar.vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple
from weakref import WeakValueDictionary

from tinyllm.errors import GrammarError
from tinyllm.grammar.expression import FAR, Rules
from tinyllm.grammar.states import DFAState, Move, Pending, States, fewer


class Frame:
    """A call that is not over, and the frame below it.

    state: the DFA state to return to. The rule has to be read min_left times more, and
    may be read max_left times, before that; one reading takes at least `unit` bytes.
    needed: the fewest bytes from the end of this reading to the end of the text.
    """

    __slots__ = (
        *("state", "min_left", "max_left", "unit"),
        *("below", "needed", "__weakref__"),
    )

    def __init__(self, pending: Pending, below: Frame | None) -> None:
        self.state, self.min_left, self.max_left, self.unit = pending
        self.below = below
        here = self.state.needed + self.min_left * self.unit
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
        # A stack that is not known, and no bounds: what returns to it is a dead end.
        self.ground = self.frame(Pending(self.dead, 0, FAR, 0), None)

    def step(self, state: State, byte: int) -> tuple[State | None, int]:
        """Return the state after one byte, None where it is illegal, and its ticks.

        A tick is that a body on the ground begins again (`ground`).
        """
        for dfa, frame in self.levels(state):
            move = self.moves(dfa).get(byte)
            if move is not None and (not move.again or (frame and frame.max_left)):
                ticks = int(move.again and frame is self.ground)
                return self._after(move, frame), ticks
        return None, 0

    def next(self, state: State, byte: int) -> State | None:
        """Return the state after one byte, None where it is illegal."""
        return self.step(state, byte)[0]

    def may_end(self, state: State) -> bool:
        """Return whether the text is complete: every call that is not over may end."""
        return any(frame is None and dfa.final for dfa, frame in self.levels(state))

    def legal_bytes(self, state: State) -> frozenset[int]:
        """Return the bytes that may come next."""
        return frozenset(
            byte
            for dfa, frame in self.levels(state)
            for byte, move in self.moves(dfa).items()
            if not move.again or (frame and frame.max_left)
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

    def check(self, state: State) -> None:
        """Raise GrammarError for what is not a state of this machine."""
        if not (
            isinstance(state, State)
            and isinstance(state.dfa, DFAState)
            and isinstance(state.frame, Frame | None)
            and self._known.get(state.dfa.positions) is state.dfa is not self.dead
        ):
            raise GrammarError(
                f"{state!r:.80} is not a state of this grammar: use what start() and "
                "advance() return"
            )

    def least(self, state: State) -> int:
        """Return the number of bytes of the shortest completion."""
        return state.dfa.needed + (state.frame.needed if state.frame else 0)

    def rest(self, state: State) -> bytes:
        """Return a shortest text from a state to the end."""
        text = bytearray()
        while self.least(state):
            dfa, frame = state
            # Where the rule may end, nothing in it is nearer than what it returns to.
            while not dfa.needed and frame and not frame.min_left:
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
        key = (pending, id(below))  # a frame keeps the one below alive, and so its id
        frame = self._frames.get(key)
        if frame is None:
            frame = self._frames[key] = Frame(pending, below)
        return frame

    def levels(self, state: State) -> Iterator[State]:
        """Yield a state and, as long as the rule above may end, what it returns to."""
        yield state
        dfa, frame = state
        while frame is not None and dfa.final and not frame.min_left:
            dfa, frame = frame.state, frame.below
            yield State(dfa, frame)

    def _after(self, move: Move, frame: Frame | None) -> State:
        """Return the state after a move: the one step of the stack machine."""
        if move.again and frame is not None:
            left = fewer(frame.min_left), fewer(frame.max_left)
            # The same call with one reading less to go, above the same frame.
            frame = self.frame(Pending(frame.state, *left, frame.unit), frame.below)
        for pending in move.calls:
            frame = self.frame(pending, frame)
        return State(move.target, frame)
