"""Sessions shared: by forks, which part, and by threads, which are refused."""

from __future__ import annotations

import signal
import threading

import numpy as np
import pytest

from tests.decode.test_session import PROMPT, broken, cold
from tinyllm.decode.session import Session
from tinyllm.errors import CacheError, InferenceError
from tinyllm.model.cache import KVCache
from tinyllm.model.transformer import Model


@pytest.fixture
def session(model):
    return Session(model)


def test_a_fork_holds_the_same_and_goes_its_own_way(session, model):
    session.feed(PROMPT)
    fork = session.fork()
    assert fork.token_ids == PROMPT
    assert (fork.forwarded, fork.reused, fork.rewound) == (0, 0, 0)
    assert np.array_equal(fork.extend([8]), cold(model, [*PROMPT, 8]))
    assert np.array_equal(session.extend([9]), cold(model, [*PROMPT, 9]))
    fork.rewind(1)
    assert fork.rewound == 5
    assert session.token_ids == [*PROMPT, 9]
    assert np.array_equal(session.feed([*PROMPT, 9]), cold(model, [*PROMPT, 9]))


def test_a_branch_forwards_only_what_is_new(session):
    session.feed(PROMPT)
    branches = [session.fork() for _ in range(3)]
    for i, branch in enumerate(branches):
        branch.feed([*PROMPT, i])
    assert [branch.forwarded for branch in branches] == [1, 1, 1]
    assert session.forwarded == 5


def test_what_fails_in_a_fork_leaves_its_origin_alone(config, weights):
    model = Model(config, weights)
    session = Session(model)
    session.feed(PROMPT)
    fork = session.fork()
    mend = broken(model, KeyboardInterrupt(), 1)
    with pytest.raises(KeyboardInterrupt):
        fork.feed([1, 20, 99, 98])
    mend()
    assert fork.token_ids == []
    assert np.array_equal(session.extend([9]), cold(model, [*PROMPT, 9]))


CALLS = {
    "feed": lambda session: session.feed([1, 2]),
    "score": lambda session: session.score([1, 2]),
    "extend": lambda session: session.extend([1]),
    "rewind": lambda session: session.rewind(0),
    "reset": lambda session: session.reset(),
    "fork": lambda session: session.fork(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_second_thread_is_refused_while_one_is_inside(config, weights, name):
    model = Model(config, weights)
    session = Session(model)
    session.feed(PROMPT)
    inside, done = threading.Event(), threading.Event()
    attend = model._attend

    def slow(*arguments):
        inside.set()
        assert done.wait(60)
        return attend(*arguments)

    model._attend = slow
    first = threading.Thread(target=session.extend, args=([60],))
    first.start()
    assert inside.wait(60)
    model._attend = attend
    with pytest.raises(InferenceError, match="another thread"):
        CALLS[name](session)
    done.set()
    first.join()
    assert session.token_ids == [*PROMPT, 60]
    assert np.array_equal(session.extend([9]), cold(model, [*PROMPT, 60, 9]))


def test_a_thread_may_use_what_another_has_finished_with(session, model):
    session.feed(PROMPT)
    found = []
    thread = threading.Thread(target=lambda: found.append(session.extend([9])))
    thread.start()
    thread.join()
    assert np.array_equal(found[0], cold(model, [*PROMPT, 9]))


class Interrupted:
    """A lock just after whose release Ctrl-C comes, once."""

    def __init__(self):
        self.lock, self.armed = threading.Lock(), True

    def locked(self):
        return self.lock.locked()

    def __enter__(self):
        self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["feed", "score", "extend", "rewind"])
def test_an_interrupt_when_all_is_done_but_the_return_undoes_the_call(
    session, model, name
):
    session.feed(PROMPT)
    session._lock = Interrupted()
    calls = {
        "feed": lambda: session.feed([*PROMPT, 60]),
        "score": lambda: session.score([*PROMPT, 60]),
        "extend": lambda: session.extend([60]),
        "rewind": lambda: session.rewind(2),
    }
    with pytest.raises(KeyboardInterrupt):
        calls[name]()
    assert session.token_ids == PROMPT
    assert (session.forwarded, session.reused, session.rewound) == (5, 0, 0)
    assert np.array_equal(session.extend([9]), cold(model, [*PROMPT, 9]))


def test_an_interrupt_after_overwriting_as_many_positions_leaves_it_empty(
    session, model
):
    session.feed(PROMPT)
    session._lock = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        session.feed([1, 20, 99, 98, 97])  # as long as what is held
    assert session.token_ids == []
    assert session.rewound == 5
    assert np.array_equal(session.feed(PROMPT), cold(model, PROMPT))


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers")
def test_real_interrupts_at_any_moment_leave_the_old_state_or_none(config, weights):
    """A timer's signal counts while it finds `feed` at work; cold runs must agree."""
    model = Model(config, weights)
    session, caught = Session(model), 0

    def ring(_, frame):
        while frame is not None:
            if frame.f_code is Session.feed.__code__:
                raise KeyboardInterrupt
            frame = frame.f_back

    old = signal.signal(signal.SIGALRM, ring)
    try:
        for i in range(300):
            before, ids = session.token_ids, [*PROMPT[: i % 5], 60 + i % 3, 9]
            signal.setitimer(signal.ITIMER_REAL, 1e-5 * (1 + i % 60))
            try:
                session.feed(ids)
            except KeyboardInterrupt:
                caught += 1
                assert session.token_ids in (before, [])
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert not session._lock.locked()
            assert session.forwarded == session.length + session.rewound
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert caught > 0
    assert np.array_equal(session.feed(PROMPT), cold(model, PROMPT))


def test_a_cache_that_holds_something_needs_its_ids(model):
    cache = KVCache(model.config)
    model.forward([5, 6, 7], cache)
    with pytest.raises(CacheError, match="3 positions"):
        Session(model, cache=cache)
    session = Session(model, cache=cache, token_ids=[5, 6, 7])
    assert np.array_equal(session.extend([9]), cold(model, [5, 6, 7, 9]))
