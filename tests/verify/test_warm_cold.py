"""What a backend did before changes nothing it writes, and the command would notice."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

import tinyllm
from tests.scripted_lm import untrained_lm
from tinyllm.decode.session import Session
from tinyllm.errors import UsageError
from tinyllm.numpy_engine import NumpyEngine
from tinyllm.verify import warm_cold
from tinyllm.verify.injected import InjectedError
from tinyllm.verify.warm_cold import (
    ARMS,
    TASKS,
    Run,
    Verdict,
    n_runs,
    summary,
    verify_cache,
)

DATA = Path(__file__).parents[2] / "notebooks" / "data"


@pytest.fixture(scope="module")
def tools():
    return tinyllm.tools.default(DATA)


def names(verdict):
    return {way for way, same in verdict.same.items() if not same}


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("name", ["agent", "toy"])
def test_the_agent_writes_the_same_however_it_was_used_before(tools, name, exact):
    told = []
    load = partial(tinyllm.load, name, exact=exact)
    verdicts = verify_cache(load, tools, on_run=lambda: told.append(1))
    assert [v.task for v in verdicts] == list(TASKS) * 3
    assert {v.arm for v in verdicts} == {"constrained", "free", "temperature 1"}
    assert [v for v in verdicts if not v.passed] == []
    assert summary(verdicts) == "PASS"
    assert len(told) == n_runs(TASKS)
    for verdict in verdicts:
        assert set(verdict.same) == {
            "warm",
            "interleaved",
            "after a failure",
            "prefixes",
        }
        assert verdict.runs["interleaved"].reused > verdict.cold.reused


def test_arms_differ_so_that_each_is_a_case_of_its_own(tools):
    """On the toy, which has learned nothing, no two of them write the same."""
    verdicts = verify_cache(partial(tinyllm.load, "toy"), tools, TASKS[:1])
    assert len({verdict.cold.token_ids for verdict in verdicts}) == len(ARMS) == 3


def test_a_model_that_wants_nothing_in_particular_holds_too(tools):
    verdicts = verify_cache(untrained_lm, tools, TASKS[:2], steps=1)
    assert all(verdict.passed for verdict in verdicts)


def test_the_model_is_loaded_anew_for_each_cold_run(tools):
    loaded = []

    def load():
        loaded.append(tinyllm.load())
        return loaded[-1]

    verify_cache(load, tools, TASKS[:2], steps=1)
    assert len({id(lm.model) for lm in loaded}) == 1 + 2 * len(ARMS)


def test_each_task_is_made_to_fail_half_way_twice(tools, monkeypatch):
    caught = []

    class Counting(warm_cold.suppress):
        def __exit__(self, kind, *rest):
            caught.append(kind)
            return super().__exit__(kind, *rest)

    monkeypatch.setattr(warm_cold, "suppress", Counting)
    verify_cache(tinyllm.load, tools, TASKS[:2], steps=1)
    assert caught == [InjectedError] * 4 * len(ARMS)


class ByLength(Session):
    """Trusts that whatever is held begins the new transcript."""

    def feed(self, token_ids):
        shared = min(self.length, len(token_ids) - 1)
        self.rewind(shared)
        return self.extend(token_ids[shared:])


class HalfWay(Session):
    """Keeps what a failed call has written, as if it had been forwarded."""

    def _forward(self, token_ids, append, every_row=False):
        held = self.token_ids if append else []
        try:
            return super()._forward(token_ids, append, every_row)
        except InjectedError:
            self._ids = [*held, *token_ids]
            self.cache.length = len(self._ids)
            raise


class OneTooMany(Session):
    """After a reset, believes that one position is still held."""

    def reset(self):
        self.cache.length = min(1, self.length)


def engine_of(kind):
    """A function that loads an engine with such sessions."""

    class Broken(NumpyEngine):
        def session(self):
            return kind(self.model)

    def load():
        lm = tinyllm.load()
        return Broken(lm.model, lm.tokenizer)

    return load


@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        (ByLength, {"interleaved", "after a failure"}),
        (HalfWay, {"after a failure"}),
    ],
)
def test_a_session_that_is_wrong_is_noticed_in_the_ways_it_is_wrong(tools, kind, seen):
    verdicts = verify_cache(engine_of(kind), tools, TASKS[:3], steps=1)
    assert set().union(*map(names, verdicts)) == seen
    diverged = sum(bool(names(verdict)) for verdict in verdicts)
    assert summary(verdicts) == f"FAIL: {diverged} of 9 prompts diverged"
    assert {v.arm for v in verdicts if names(v)} == set(ARMS), "each arm notices it"


class Rounding(Session):
    """Right to the eye: a transcript that is fed gives logits a little off."""

    def feed(self, token_ids):
        return super().feed(token_ids) * np.float32(1 + 1e-4)


def test_prefixes_are_judged_by_their_logits(tools):
    verdicts = verify_cache(engine_of(Rounding), tools, TASKS[:1])
    assert [names(verdict) for verdict in verdicts] == [{"prefixes"}] * 3


def test_backends_are_shared_and_tasks_ordered_as_the_ways_say(tools, monkeypatch):
    asked = []

    class Watched(warm_cold.Agent):
        def run(self, task, *callbacks):
            asked.append((id(self.backend), task))
            kept.append(self.backend)
            return super().run(task, *callbacks)

    kept = []  # backends stay alive, so that no id comes twice
    monkeypatch.setattr(warm_cold, "Agent", Watched)
    a, b = TASKS[:2]
    verify_cache(tinyllm.load, tools, (a, b), steps=1)
    backends = [backend for backend, _ in asked]
    assert [task for _, task in asked[:7]] == [a, b, a, b, a, b, a]
    assert len(set(backends[:2])) == 2  # cold
    assert len(set(backends[2:4])) == 1  # warm
    assert len(set(backends[4:7])) == 1  # interleaved
    assert len({*backends[:3], backends[4], backends[7]}) == 5


def test_a_transcript_that_fills_the_context_is_judged(tools):
    task = "7" * 415
    verdicts = verify_cache(tinyllm.load, tools, [task])
    assert verdicts[0].passed
    assert len(verdicts[0].cold.token_ids) > 512


def test_a_reset_that_keeps_the_same_first_token_changes_nothing(tools):
    """Why: every transcript begins with bos, so that position is the right one."""
    load = engine_of(OneTooMany)
    assert all(
        verdict.passed for verdict in verify_cache(load, tools, TASKS[:2], steps=1)
    )


def test_a_verdict_names_each_way():
    cold, other = Run((1, 2), 0), Run((1, 3), 0)
    runs = {"warm": cold, "interleaved": other}
    verdict = Verdict("task", "free", cold, runs, True)
    assert verdict.same == {"warm": True, "interleaved": False, "prefixes": True}
    assert not verdict.passed
    assert not Verdict("task", "free", cold, {"warm": cold}, False).passed
    assert summary([verdict]) == "FAIL: 1 of 1 prompt diverged"


def test_what_cannot_be_verified_is_refused(tools):
    with pytest.raises(UsageError, match="one task"):
        verify_cache(tinyllm.load, tools, [])
