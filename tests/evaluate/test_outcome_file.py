"""An ablation that was stopped goes on where it was, and never mixes measurements."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyllm.errors import ModelNotFoundError, UsageError
from tinyllm.evaluate.ablation import ARMS, CONDITIONS, Outcome
from tinyllm.evaluate.outcome_file import OutcomeFile, about
from tinyllm.models.find import EMBEDDED

ONE = Outcome("calc", 0, 2, 2, 2, True, True, False, 50, 130, 0.9, "answered")
ABOUT = {"condition": "trained", "arm": "mask", "seed": 0}


def filled(path, n=3):
    """A file with n outcomes of a family, and those outcomes."""
    kept = OutcomeFile(path, ABOUT)
    for number in range(n):
        kept.add(replace(ONE, number=number))
    return kept.outcomes


def test_what_was_added_is_there_again(tmp_path):
    path = tmp_path / "a" / "x.jsonl"
    found = filled(path)
    again = OutcomeFile(path, ABOUT)
    assert again.outcomes == found
    assert (again.done("calc"), again.done("read")) == (3, 0)


def test_a_file_cut_at_any_byte_gives_the_outcomes_whose_lines_are_whole(tmp_path):
    path = tmp_path / "x.jsonl"
    found = filled(path)
    data = path.read_bytes()
    ends = [i for i, byte in enumerate(data, start=1) if byte == ord("\n")]
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        kept = OutcomeFile(path, ABOUT)
        n = max(0, sum(end <= cut for end in ends) - 1)
        assert kept.outcomes == found[:n]
        kept.add(replace(ONE, number=n))
        assert len(OutcomeFile(path, ABOUT).outcomes) == n + 1


@pytest.mark.parametrize("key", ["condition", "arm", "seed"])
def test_a_file_about_something_else_is_refused_and_left_alone(tmp_path, key):
    path = tmp_path / "x.jsonl"
    filled(path)
    before = path.read_bytes()
    with pytest.raises(UsageError, match=r"another measurement.*--out"):
        OutcomeFile(path, ABOUT | {key: "other"})
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "text", ["{\n", "[]\n", "null\nnull\n", '{"a": 1}\n[1]\n', "\n\n"], ids=repr
)
def test_a_file_of_another_kind_is_refused(tmp_path, text):
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"x\.jsonl cannot be resumed"):
        OutcomeFile(path, ABOUT)
    assert path.read_text() == text


def test_a_line_with_a_foreign_field_is_refused(tmp_path):
    path = tmp_path / "x.jsonl"
    filled(path)
    with path.open("a") as file:
        file.write(json.dumps(ONE.to_json() | {"extra": 1}) + "\n")
    with pytest.raises(UsageError, match="damaged"):
        OutcomeFile(path, ABOUT)


@pytest.mark.parametrize(
    ("field", "value"),
    [("tokens", None), ("calls", "2"), ("solved", 1), ("number", True), ("family", 3)],
)
def test_a_field_of_another_kind_is_refused(tmp_path, field, value):
    path = tmp_path / "x.jsonl"
    filled(path, 0)
    with path.open("a") as file:
        file.write(json.dumps(ONE.to_json() | {field: value}) + "\n")
    with pytest.raises(UsageError, match="damaged"):
        OutcomeFile(path, ABOUT)


@pytest.mark.parametrize("numbers", [[0, 0], [1], [0, 2], [1, 0]], ids=str)
def test_tasks_that_are_not_in_order_are_refused(tmp_path, numbers):
    path = tmp_path / "x.jsonl"
    kept = OutcomeFile(path, ABOUT)
    for number in numbers:
        kept.add(replace(ONE, number=number))
        kept.add(replace(ONE, number=number, family="read"))
    with pytest.raises(UsageError, match="not in order"):
        OutcomeFile(path, ABOUT)


def test_a_second_process_on_the_same_file_is_noticed_by_whoever_comes_second(tmp_path):
    path = tmp_path / "x.jsonl"
    one, two = OutcomeFile(path, ABOUT), OutcomeFile(path, ABOUT)
    one.add(ONE)
    with pytest.raises(UsageError, match="another process"):
        two.add(ONE)
    one.add(replace(ONE, number=1))
    assert OutcomeFile(path, ABOUT).done("calc") == 2


def test_without_a_path_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = OutcomeFile(None, ABOUT)
    kept.add(ONE)
    assert kept.outcomes == [ONE]
    assert list(tmp_path.iterdir()) == []


def test_another_model_arm_temperature_or_seed_is_another_measurement(tmp_path):
    trained, mask = CONDITIONS["trained"], ARMS["mask"]
    first = about(trained, mask, 0)
    assert about(CONDITIONS["story-only"], mask, 0)["model"] != first["model"]
    assert about(trained, ARMS["free"], 0) != first
    assert about(replace(trained, temperature=0.5), mask, 0) != first
    assert about(trained, mask, 1) != first
    with pytest.raises(ModelNotFoundError):
        about(replace(trained, model="no/such"), mask, 0)


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "model.safetensors", "second.safetensors"]
)
def test_whatever_a_model_is_read_from_counts(tmp_path, name):
    folder = tmp_path / "model"
    shutil.copytree(EMBEDDED / "stories", folder)
    (folder / "second.safetensors").write_bytes(b"x")
    condition = replace(CONDITIONS["trained"], model=str(folder))
    before = about(condition, ARMS["mask"], 0)
    (folder / "README.md").write_text("other words")
    assert about(condition, ARMS["mask"], 0) == before
    with (folder / name).open("ab") as file:
        file.write(b" ")
    assert about(condition, ARMS["mask"], 0) != before


@given(st.lists(st.sampled_from(["calc", "read"]), max_size=6))
def test_what_is_done_is_counted_by_family(families):
    kept = OutcomeFile(None, ABOUT)
    for family in families:
        kept.add(replace(ONE, family=family))
    assert kept.done("calc") == families.count("calc")
    assert kept.done("read") == families.count("read")
