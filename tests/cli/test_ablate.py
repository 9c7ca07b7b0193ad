"""`tinyllm ablate`: what it prints, keeps and goes on with."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from tinyllm.agent.local import LocalBackend
from tinyllm.cli import ablate as cli_ablate
from tinyllm.cli import main as cli
from tinyllm.evaluate import ablation
from tinyllm.evaluate.table import Row

SMALL = ("ablate", "--family", "direct", "--arm", "free", "--arm", "mask")
SMALL = (*SMALL, "--condition", "trained", "--tasks", "2")


def run(capsys, *arguments):
    """(exit code, standard output, standard error) of one command, in this process."""
    code = cli.main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_it_prints_a_row_for_each_arm_and_keeps_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *SMALL)
    assert code == 0
    first, condition, free, _, mask, *_ = out.splitlines()
    assert first.split()[:2] == ["tasks", "parsed"]
    assert condition == "trained"
    assert (free.split()[:2], mask.split()[:2]) == (["free", "2"], ["mask", "2"])
    assert out.splitlines()[10].split() == ["mask", "2", *["0", "0", "1.0000"] * 2]
    assert "trained, mask: 100 %" in err
    assert list(tmp_path.iterdir()) == []


def test_json_table_and_outcomes_are_kept_and_the_same_each_time(capsys, tmp_path):
    for name in ("a", "b"):
        code, out, _ = run(capsys, *SMALL, "--out", str(tmp_path / name), "--json")
        assert code == 0
        rows = [Row.from_json(plain) for plain in json.loads(out)]
        assert [(row.arm, row.tasks) for row in rows] == [("free", 2), ("mask", 2)]
    files = {path.name for path in (tmp_path / "a").iterdir()}
    kept = {"ablation.json", "ablation.txt", "ablation.png", "trained-mask.jsonl"}
    assert kept <= files
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (
            tmp_path / "b" / name
        ).read_bytes(), name


def test_a_run_that_was_stopped_goes_on_and_ends_as_if_it_had_not_been(
    capsys, tmp_path, monkeypatch
):
    whole, part = tmp_path / "whole", tmp_path / "part"
    run(capsys, *SMALL, "--out", str(whole))
    real, asked = ablation.judged, []
    monkeypatch.setattr(ablation, "differing", lambda *_: [])  # which judges as well

    def stopped(*args):
        asked.append(args[0])
        if len(asked) == 4:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(ablation, "judged", stopped)
    code, out, err = run(capsys, *SMALL, "--out", str(part))
    assert (code, out) == (130, "")
    assert "resumes there" in err
    code, _, _ = run(capsys, *SMALL, "--out", str(part))
    assert code == 0
    assert asked == [0, 1, 0, 1, 1], "only what was lacking is measured again"
    for path in whole.iterdir():
        assert (part / path.name).read_bytes() == path.read_bytes(), path.name


def test_more_tasks_are_added_to_those_that_are_there(capsys, tmp_path):
    run(capsys, *SMALL, "--out", str(tmp_path))
    more = [*SMALL[:-1], "3", "--out", str(tmp_path), "--json"]
    _, out, err = run(capsys, *more)
    assert [row["tasks"] for row in json.loads(out)] == [3, 3]
    assert "67 %" in err or "100 %" in err
    _, out, err = run(capsys, *SMALL, "--out", str(tmp_path), "--json")
    assert [row["tasks"] for row in json.loads(out)] == [3, 3]
    assert "3 tasks a family are there" in err


def test_families_of_unequal_length_are_counted_to_the_shortest(capsys, tmp_path):
    run(capsys, *SMALL[:-1], "4", "--out", str(tmp_path))
    both = [*SMALL, "--family", "remember", "--out", str(tmp_path), "--json"]
    _, out, _ = run(capsys, *both)
    assert [row["tasks"] for row in json.loads(out)] == [4, 4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--arm", "masks"), "no arm 'masks': there are free"),
        (("--condition", "x"), "no condition 'x': there are trained"),
        (("--family", "x"), "no family 'x': there are calc"),
        (("--condition", "early"), "tinyllm train agent --steps 300"),
    ],
)
def test_an_unknown_name_is_exit_code_2_before_anything_is_measured(
    capsys, arguments, message
):
    code, out, err = run(capsys, "ablate", *arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_an_early_checkpoint_is_any_folder_with_a_model(capsys, tmp_path):
    from tinyllm.models.find import EMBEDDED

    early = tmp_path / "early"
    shutil.copytree(EMBEDDED / "stories", early)
    small = [*SMALL[:-4], "--tasks", "1", "--early", str(early)]
    _, out, _ = run(capsys, *small, "--condition", "early", "--json")
    rows = json.loads(out)
    assert [row["condition"] for row in rows] == ["early", "early"]
    assert rows[0]["counts"]["parsed"] == 0
    assert rows[1]["counts"]["parsed"] == 1


def test_a_model_that_is_missing_is_said_before_anything_is_measured(
    capsys, tmp_path, monkeypatch
):
    monkeypatch.setattr(ablation, "judged", lambda *_: pytest.fail("measured"))
    missing = str(tmp_path / "none")
    code, _, err = run(capsys, "ablate", "--early", missing)
    assert code == 1
    assert missing in err


def test_a_folder_of_another_measurement_is_refused(capsys, tmp_path):
    run(capsys, *SMALL, "--out", str(tmp_path))
    code, _, err = run(capsys, *SMALL, "--out", str(tmp_path), "--seed", "1")
    assert code == 2
    assert "another measurement" in err


def test_a_file_of_another_measurement_is_refused_before_anything_is_measured(
    capsys, tmp_path, monkeypatch
):
    (tmp_path / "trained-mask.jsonl").write_text("{}\n")
    monkeypatch.setattr(ablation, "judged", lambda *_: pytest.fail("measured"))
    code, _, err = run(capsys, *SMALL, "--out", str(tmp_path))
    assert code == 2
    assert "another measurement" in err


def test_a_folder_that_cannot_be_made_is_a_sentence(capsys, tmp_path):
    (tmp_path / "file").write_text("x")
    code, _, err = run(capsys, *SMALL, "--out", str(tmp_path / "file" / "x"))
    assert code == 2
    assert "cannot be written" in err


def test_without_matplotlib_there_is_no_picture_and_a_word_about_it(
    capsys, tmp_path, monkeypatch
):
    monkeypatch.setattr(cli_ablate, "DRAWN_WITH", ("matplotlib", "no_such_module"))
    code, _, err = run(capsys, *SMALL, "--out", str(tmp_path))
    assert code == 0
    assert "no ablation.png: it needs no_such_module" in err
    assert not (tmp_path / "ablation.png").exists()


@pytest.mark.parametrize("name", ["ablation.json", "ablation.txt", "ablation.png"])
def test_a_write_that_fails_leaves_the_results_of_the_run_before(
    capsys, tmp_path, monkeypatch, name
):
    run(capsys, *SMALL, "--out", str(tmp_path))
    before = (tmp_path / name).read_bytes()
    real = os.replace

    def refused(part, target):
        if target.name == name:
            raise OSError(28, "No space left on device")
        real(part, target)

    monkeypatch.setattr(os, "replace", refused)
    code, _, err = run(capsys, *SMALL[:-1], "3", "--out", str(tmp_path))
    assert (code, "No space" in err) == (1, True)
    assert (tmp_path / name).read_bytes() == before
    assert not list(tmp_path.glob("*.part"))


def test_what_a_backend_did_before_must_not_change_an_outcome(
    capsys, tmp_path, monkeypatch
):
    real = LocalBackend.reset

    def lazy(backend):
        """Forget to empty the session: the next task finds the last one there."""
        kept, backend.session = backend.session, backend.lm.session()
        real(backend)
        backend.session = kept

    code, _, _ = run(capsys, *SMALL)
    assert code == 0
    monkeypatch.setattr(LocalBackend, "reset", lazy)
    code, out, err = run(capsys, *SMALL, "--out", str(tmp_path))
    assert (code, out) == (1, "")
    assert "task 1 of direct has another outcome in a cold run" in err
    assert "tinyllm verify cache --model agent" in err
    assert not (tmp_path / "ablation.txt").exists()
