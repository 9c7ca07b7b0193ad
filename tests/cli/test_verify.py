"""`tinyllm verify`: what it prints, and that it can fail."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.test_main import run
from tests.verify.test_warm_cold import ByLength
from tinyllm import numpy_engine
from tinyllm.models import find
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
    monkeypatch.setattr(equivalence, "shifted", lambda lm, **_: lm)
    code, out, _ = run(capsys, "verify", "kv", "--prompt", "Once upon a time")
    assert code == 1
    assert out.splitlines()[-1] == "FAIL"
    assert "FAIL  bug: decode one position late" in out


def test_cache_says_yes_for_each_task_and_way(capsys):
    tasks = ["What is 12 * 34?", "What is 12 + 34?"]
    code, out, _ = run(capsys, "verify", "cache", *prompts(*tasks))
    assert code == 0
    assert out.splitlines()[-1] == "PASS"
    assert out.count("interleaved yes") == 2 * 3
    assert out.count("(temperature 1)") == out.count("(free)") == 2
    assert "NO" not in out


def test_cache_shows_both_texts_where_they_differ(capsys, monkeypatch):
    monkeypatch.setattr(numpy_engine, "Session", ByLength)
    tasks = ["What is 12 * 34?", "What is 98 - 45?"]
    code, out, _ = run(capsys, "verify", "cache", *prompts(*tasks))
    assert code == 1
    assert re.fullmatch(r"FAIL: [1-6] of 6 prompts diverged", out.splitlines()[-1])
    assert "warm yes" in out
    assert "interleaved NO" in out
    assert out.count("  cold:") == out.count("TASK: ") / 2 >= 2


def test_cache_reports_json(capsys):
    code, out, _ = run(
        capsys, "verify", "cache", "--json", "--prompt", "What is 12 * 34?"
    )
    found = json.loads(out)
    assert code == 0
    assert (found["passed"], found["diverged"], len(found["prompts"])) == (True, 0, 3)
    assert found["prompts"][1] == {
        "task": "What is 12 * 34?",
        "arm": "free",
        "same": dict.fromkeys(found["ways"], True),
    }


@pytest.mark.parametrize("what", ["kv", "cache"])
@pytest.mark.parametrize("mode", [[], ["--fast"]])
def test_both_run_on_the_toy_without_any_file(
    capsys, monkeypatch, tmp_path, what, mode
):
    monkeypatch.setattr(find, "EMBEDDED", tmp_path)
    code, out, _ = run(capsys, "verify", what, "--model", "toy", *mode)
    assert (code, out.splitlines()[-1]) == (0, "PASS")
    assert out.startswith("ToyEngine('toy', ")


def test_a_shorter_context_is_an_option(capsys):
    code, _, err = run(capsys, "verify", "kv", "--context", "30")
    assert code == 1
    assert "limit of 30" in err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["kv", *prompts("a", "b")], 2, "one --prompt"),
        (["kv", *prompts("")], 1, "2 or more"),
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
