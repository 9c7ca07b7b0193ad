from __future__ import annotations

import pytest

from tinyllm.decode import threads
from tinyllm.decode.threads import USER_CHOICE, one_blas_thread


class Limit:
    def __init__(self, calls):
        self.calls = calls
        calls.append("limit")

    def restore_original_limits(self):
        self.calls.append("restore")


class Controller:
    def __init__(self):
        self.calls = []

    def limit(self, *, limits, user_api):
        assert (limits, user_api) == (1, "blas")
        return Limit(self.calls)


@pytest.fixture
def calls(monkeypatch):
    for name in USER_CHOICE:
        monkeypatch.delenv(name, raising=False)
    controller = Controller()
    monkeypatch.setattr(threads, "_controller", lambda: controller)
    return controller.calls


def test_threads_are_limited_inside_and_restored_outside(calls):
    with one_blas_thread():
        assert calls == ["limit"]
    assert calls == ["limit", "restore"]


def test_blocks_that_overlap_restore_once_at_the_end(calls):
    a, b = one_blas_thread(), one_blas_thread()
    a.__enter__()
    b.__enter__()
    a.__exit__(None, None, None)  # the first in is the first out
    assert calls == ["limit"]
    b.__exit__(None, None, None)
    assert calls == ["limit", "restore"]


def test_an_exception_restores_them(calls):
    with pytest.raises(KeyboardInterrupt), one_blas_thread():
        raise KeyboardInterrupt
    assert calls == ["limit", "restore"]


@pytest.mark.parametrize("name", USER_CHOICE)
def test_a_variable_of_the_user_wins(calls, monkeypatch, name):
    monkeypatch.setenv(name, "4")
    with one_blas_thread():
        pass
    assert calls == []


def test_without_threadpoolctl_nothing_happens(calls, monkeypatch):
    monkeypatch.setattr(threads, "_controller", lambda: None)
    with one_blas_thread():
        pass
    assert calls == []


def test_the_real_blas_has_one_thread_inside(monkeypatch):
    threadpoolctl = pytest.importorskip("threadpoolctl")
    for name in USER_CHOICE:
        monkeypatch.delenv(name, raising=False)

    def counts():
        pools = threadpoolctl.threadpool_info()
        return [p["num_threads"] for p in pools if p["user_api"] == "blas"]

    before = counts()
    with one_blas_thread():
        assert set(counts()) <= {1}
    assert counts() == before
