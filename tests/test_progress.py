from __future__ import annotations

import io

import pytest

from tinyllm.progress import Progress, duration


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """A clock that moves `step` seconds each time it is read."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def run(stream: io.StringIO, step: float, updates: list[int], total: int = 1000) -> str:
    with Progress(total, "training", "tokens", stream, Clock(step)) as progress:
        for done in updates:
            progress.update(done, "loss 1.5")
    return stream.getvalue()


def test_on_a_terminal_one_line_is_rewritten():
    shown = run(Terminal(), 10.0, [0, 100, 200])
    last = "training: 20 %, loss 1.5, 6.7 tokens/s, 2:00 left"
    assert shown.split("\r")[-1].rstrip() == last
    assert shown.count("\n") == 1
    assert shown.endswith("\n")


def test_in_a_log_there_is_a_plain_line_now_and_then():
    shown = run(io.StringIO(), 11.0, [0, 100, 200, 300, 400, 500, 600])
    assert "\r" not in shown
    assert [line[:14] for line in shown.splitlines()] == [
        "training: 20 %",
        "training: 50 %",
    ]


def test_speed_and_time_left_are_those_of_this_run():
    """Resumed at 800 of 1000: 100 tokens in 40 s, not 900, so 100 more take 40 s."""
    shown = run(io.StringIO(), 20.0, [800, 900])
    assert shown == "training: 90 %, loss 1.5, 2.5 tokens/s, 0:40 left\n"


def test_the_last_update_is_shown_however_fresh_the_line_before():
    assert run(io.StringIO(), 0.001, [0, 1000]).startswith("training: 100 %")
    assert run(Terminal(), 0.001, [0, 1000]).endswith("\n")


def test_a_shorter_line_covers_the_longer_one_before():
    stream = Terminal()
    progress = Progress(10, "x", stream=stream, clock=Clock(1.0))
    progress.update(1, "a long note")
    progress.update(2, "b")
    first, second = stream.getvalue().split("\r")[1:]
    assert len(second) >= len(first)


def test_work_that_fails_leaves_the_cursor_on_a_new_line():
    stream = Terminal()
    progress = Progress(10, "x", stream=stream, clock=Clock(1.0))

    def work() -> None:
        with progress:
            progress.update(1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert stream.getvalue().endswith("\n")


def test_without_a_unit_the_speed_is_a_bare_rate():
    stream = io.StringIO()
    progress = Progress(4, "calc", stream=stream, clock=Clock(1.0))
    progress.update(0)
    progress.update(4)
    assert stream.getvalue() == "calc: 100 %, 2.0/s, 0:00 left\n"


def test_hours_are_shown_where_there_are_any():
    assert [duration(s) for s in (0, 59.6, 75, 3675)] == [
        "0:00",
        "1:00",
        "1:15",
        "1:01:15",
    ]


def test_a_process_without_standard_error_works_in_silence(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr", None)
    with Progress(10, "x", clock=Clock(100.0)) as progress:
        progress.update(1)
        progress.update(10)
    assert capsys.readouterr() == ("", "")
