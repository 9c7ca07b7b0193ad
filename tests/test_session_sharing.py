"""Sessions shared: by forks, which part, and by threads, which are refused."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tests.test_session import PROMPT, broken, cold
from tinyllm.decode.session import Session
from tinyllm.errors import InferenceError
from tinyllm.model.transformer import Model


@pytest.fixture
def session(model):
    return Session(model)


def test_a_fork_holds_the_same_and_goes_its_own_way(session, model):
    session.feed(PROMPT)
    fork = session.fork()
    assert fork.token_ids == PROMPT
    assert (fork.forwarded, fork.reused, fork.rewound) == (0, 0, 0)
    assert fork.eos_ids == session.eos_ids
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
