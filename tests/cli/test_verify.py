"""`tinyllm verify`: what it prints, and that it can fail."""

from __future__ import annotations

import json

import pytest

from tests.cli.test_main import run
from tests.verify.test_warm_cold import ByLength
from tinyllm import engine
from tinyllm.verify import equivalence


def prompts(*texts):
    return [word for text in texts for word in ("--prompt", text)]


def test_kv_passes_on_the_model_inside(capsys):
    code, out, _ = run(capsys, "verify", "kv", "--prompt", "Once upon a time")
    lines = out.splitlines()
    assert code == 0
    assert lines[-1] == "PASS"
    assert sum(line.startswith("PASS  ") for line in lines) == 7
    assert "every rewind point" in out
    assert "greedy text the same for" in out


def test_kv_reports_json_in_fast_mode(capsys):
    code, out, _ = run(capsys, "verify", "kv", "--fast", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["passed"] is True
    assert "fast" in found["engine"]
    assert [check["passed"] for check in found["checks"]] == [True] * 7


def test_kv_fails_where_a_bug_goes_unnoticed(capsys, monkeypatch):
    monkeypatch.setattr(equivalence, "shifted", lambda model, **_: model)
    code, out, _ = run(capsys, "verify", "kv", "--prompt", "Once upon a time")
    assert code == 1
    assert out.splitlines()[-1] == "FAIL"
    assert "FAIL  bug: decode one position late" in out


def test_cache_says_yes_for_each_task_and_way(capsys):
    tasks = ["What is 12 * 34?", "What is 12 + 34?"]
    code, out, _ = run(capsys, "verify", "cache", *prompts(*tasks))
    assert code == 0
    assert out.splitlines()[-1] == "PASS"
    assert out.count("interleaved yes") == 2
    assert "NO" not in out


def test_cache_shows_both_texts_where_they_differ(capsys, monkeypatch):
    monkeypatch.setattr(engine, "Session", ByLength)
    tasks = ["What is 12 * 34?", "What is 98 - 45?"]
    code, out, _ = run(capsys, "verify", "cache", *prompts(*tasks))
    assert code == 1
    assert out.splitlines()[-1] == "FAIL"
    assert "warm yes" in out
    assert "interleaved NO" in out
    assert out.count("  cold:") == out.count("TASK: ") / 2 >= 2


def test_cache_reports_json(capsys):
    code, out, _ = run(
        capsys, "verify", "cache", "--json", "--prompt", "What is 12 * 34?"
    )
    found = json.loads(out)
    assert code == 0
    assert found["tasks"]["What is 12 * 34?"]["after a failure"] is True


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["kv", *prompts("a", "b")], 2, "one --prompt"),
        (["kv", *prompts("a")], 1, "3 or more"),
        (["kv", *prompts("so " * 600)], 1, "context"),
        (["cache", *prompts("x" * 4000)], 2, "too long"),
        (["cache", *prompts(" ")], 2, "task"),
    ],
)
def test_what_cannot_be_verified_is_an_error_that_says_why(
    capsys, arguments, code, words
):
    found, out, err = run(capsys, "verify", *arguments)
    assert found == code
    assert out == ""
    assert words in err
