"""Sessions driven in any order against a reference that computes everything again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tests.conftest import TINY, random_weights
from tinyllm.decode.session import Session
from tinyllm.errors import (
    ContextFullError,
    InferenceError,
    InvalidTokenError,
    PromptTooShortError,
)
from tinyllm.model.cache import KVCache
from tinyllm.model.transformer import Model
from tinyllm.numpy_engine import NumpyEngine
from tinyllm.verify.injected import InjectedError, fused

RIGHT = Model(TINY, random_weights(TINY))
N_CTX, V = TINY.n_ctx, TINY.vocab_size
FEW = st.sampled_from([1, 20, 30])  # few ids, so that prefixes are shared by chance
IDS = st.lists(FEW, min_size=1, max_size=6)
WHICH = st.integers(0, 3)
BAD = st.sampled_from([[], [1, V], [-1], [1.0], [True], [1, None]])


def poisoned() -> KVCache:
    """A cache in which whatever was never written is not a number."""
    cache = KVCache(TINY)
    cache.k[:], cache.v[:] = np.nan, np.nan
    return cache


class Sessions(RuleBasedStateMachine):
    """Up to four sessions, each with the ids that it must hold."""

    @initialize()
    def begin(self):
        self.lm = fused(NumpyEngine(RIGHT, None))
        self.sessions = [Session(self.lm.model, cache=poisoned())]
        self.held = [[]]
        self.began = [0]

    def pick(self, which):
        return which % len(self.sessions)

    def forwarded(self, i, call, ids, transcript):
        """Make a call that forwards these ids; the transcript is then what is held."""
        before = self.sessions[i].forwarded
        logits = call()
        assert np.array_equal(logits, RIGHT.forward(transcript)[-1])
        assert self.sessions[i].forwarded - before == len(ids)
        self.held[i] = transcript

    @rule(which=WHICH, keep=st.integers(0, N_CTX), new=IDS)
    def feed(self, which, keep, new):
        i = self.pick(which)
        ids = (self.held[i][:keep] + new)[:N_CTX]
        shared = 0
        for a, b in zip(self.held[i], ids[:-1], strict=False):
            if a != b:
                break
            shared += 1
        reused = self.sessions[i].reused
        self.forwarded(i, lambda: self.sessions[i].feed(ids), ids[shared:], ids)
        assert self.sessions[i].reused - reused == shared

    @rule(which=WHICH, keep=st.integers(0, N_CTX), new=IDS)
    def score(self, which, keep, new):
        i = self.pick(which)
        ids = (self.held[i][:keep] + new)[:N_CTX]
        rows = self.sessions[i].score(ids)
        assert np.array_equal(rows, RIGHT.forward(ids)[-len(rows) :])
        self.held[i] = ids

    @rule(which=WHICH, new=IDS)
    def extend(self, which, new):
        i = self.pick(which)
        new = new[: N_CTX - len(self.held[i])]
        if new:
            call = lambda: self.sessions[i].extend(new)
            self.forwarded(i, call, new, self.held[i] + new)

    @rule(which=WHICH, share=st.floats(0, 1))
    def rewind(self, which, share):
        i = self.pick(which)
        n = int(share * len(self.held[i]))
        self.sessions[i].rewind(n)
        self.held[i] = self.held[i][:n]

    @rule(which=WHICH, beyond=st.integers(1, 3), below=st.booleans())
    def rewind_beyond_either_end(self, which, beyond, below):
        i = self.pick(which)
        with pytest.raises(InferenceError):
            self.sessions[i].rewind(-beyond if below else len(self.held[i]) + beyond)

    @rule(which=WHICH)
    def reset(self, which):
        i = self.pick(which)
        room = self.sessions[i].cache.k
        self.sessions[i].reset()
        assert self.sessions[i].cache.k is room
        self.held[i] = []

    @precondition(lambda self: len(self.sessions) < 4)
    @rule(which=WHICH)
    def fork(self, which):
        i = self.pick(which)
        self.sessions.append(self.sessions[i].fork())
        self.held.append(list(self.held[i]))
        self.began.append(len(self.held[i]))

    @precondition(lambda self: len(self.sessions) > 1)
    @rule(which=WHICH)
    def drop(self, which):
        i = self.pick(which)
        for kept in (self.sessions, self.held, self.began):
            del kept[i]

    @rule(which=WHICH, keep=st.integers(0, 8), new=IDS, layer=st.integers(0, 2))
    def feed_that_fails(self, which, keep, new, layer):
        i = self.pick(which)
        ids = (self.held[i][:keep] + new)[:N_CTX]
        counts = self.sessions[i].forwarded, self.sessions[i].reused
        self.lm.model.fuse = layer
        with pytest.raises(InjectedError):
            self.sessions[i].feed(ids)
        found = self.sessions[i].token_ids
        extends = (
            len(ids) > len(self.held[i]) and ids[: len(self.held[i])] == self.held[i]
        )
        assert found == (self.held[i] if extends else [])
        assert (self.sessions[i].forwarded, self.sessions[i].reused) == counts
        self.held[i] = found

    @rule(which=WHICH, bad=BAD, feeds=st.booleans())
    def refused(self, which, bad, feeds):
        session = self.sessions[self.pick(which)]
        with pytest.raises((InvalidTokenError, PromptTooShortError)):
            (session.feed if feeds else session.extend)(bad)

    @rule(which=WHICH, beyond=st.integers(1, 3))
    def overflow(self, which, beyond):
        i = self.pick(which)
        with pytest.raises(ContextFullError, match=str(N_CTX)):
            self.sessions[i].feed([7] * (N_CTX + beyond))
        with pytest.raises(ContextFullError, match=str(N_CTX)):
            self.sessions[i].extend([7] * (N_CTX - len(self.held[i]) + beyond))

    @rule(which=WHICH)
    def fill(self, which):
        i = self.pick(which)
        new = [7] * (N_CTX - len(self.held[i]))
        if new:
            call = lambda: self.sessions[i].extend(new)
            self.forwarded(i, call, new, self.held[i] + new)

    @invariant()
    def ids_and_lengths_are_those_of_the_reference(self):
        for session, held in zip(self.sessions, self.held, strict=True):
            assert session.token_ids == held
            assert session.length == session.cache.length == len(held)
            assert session.n_free == N_CTX - len(held)

    @invariant()
    def what_came_in_is_held_or_was_rewound(self):
        for session, began in zip(self.sessions, self.began, strict=True):
            assert session.rewound >= 0
            assert began + session.forwarded == session.length + session.rewound

    def teardown(self):
        """Whatever happened, each session still goes on like a cold one."""
        for i in range(len(getattr(self, "sessions", ()))):
            self.extend(i, [20, 1])


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
