from __future__ import annotations

import io
import os
from dataclasses import replace

import numpy as np
import pytest

from tests.trained_tokenizer import tokenizer
from tinyllm.errors import CheckpointError, Named, UsageError
from tinyllm.formats.hf_folder import load_folder
from tinyllm.model.config import Config
from tinyllm.train import command, corpus, loop
from tinyllm.train.command import train

CONFIG = Config(
    dim=16,
    hidden_dim=24,
    n_layers=1,
    n_heads=2,
    n_kv_heads=1,
    head_dim=8,
    vocab_size=512,
    n_ctx=64,
)
FILES = ["README.md", "checkpoint.npz", "config.json", "model.safetensors"]
FILES += ["tokenizer.json"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A recipe of three small steps, and the tokenizer that is learned already."""
    recipes = {
        n: replace(r, steps=3, config=CONFIG, step_tokens=256)
        for n, r in loop.RECIPES.items()
    }
    monkeypatch.setattr(command, "RECIPES", Named("recipe", recipes))
    monkeypatch.setattr(corpus, "learn_tokenizer", lambda seed, size: tokenizer())


def test_one_call_makes_a_model_folder_that_loads(tmp_path):
    out = io.StringIO()
    assert (
        train("agent", tmp_path / "new" / "model", stream=out) == tmp_path / "new/model"
    )
    model, found = load_folder(tmp_path / "new" / "model")
    assert sorted(os.listdir(tmp_path / "new" / "model")) == FILES
    assert model.config == CONFIG
    assert found.tokens == tokenizer().tokens
    assert np.isfinite(model.forward([1, 5, 9])).all()


def test_the_corpus_is_named_by_its_checksum_in_the_card_and_on_the_way(tmp_path):
    out = io.StringIO()
    train("agent", tmp_path, stream=out)
    ids = corpus.build(tokenizer(), 769, 1, corpus.AGENT)
    assert corpus.checksum(ids) in out.getvalue()
    card = (tmp_path / "README.md").read_text("utf-8")
    assert corpus.checksum(ids) in card
    assert "3 steps of 256 tokens" in card
    assert "step 3 of 3, loss" in out.getvalue()


def test_a_second_run_trains_nothing_and_gives_the_same_files(tmp_path, monkeypatch):
    train("stories", tmp_path, stream=io.StringIO())
    names = [n for n in FILES if n != "checkpoint.npz"]
    before = {n: (tmp_path / n).read_bytes() for n in names}
    monkeypatch.setattr(loop, "train_step", None)
    train("stories", tmp_path, stream=io.StringIO())
    assert {n: (tmp_path / n).read_bytes() for n in names} == before


def test_ctrl_c_says_how_to_go_on_and_leaves_no_half_written_file(
    tmp_path, monkeypatch
):
    real = loop.train_step

    def stopped(recipe, ids, optimizer):
        if optimizer.steps == 2:
            raise KeyboardInterrupt
        return real(recipe, ids, optimizer)

    monkeypatch.setattr(loop, "train_step", stopped)
    out = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        train("agent", tmp_path, stream=out)
    path = tmp_path / "checkpoint.npz"
    assert out.getvalue().endswith(f"stopped: the same command resumes from {path}\n")
    assert os.listdir(tmp_path) == ["checkpoint.npz"]
    monkeypatch.setattr(loop, "train_step", real)
    train("agent", tmp_path, stream=out)
    assert "step 3 of 3" in out.getvalue()


def test_ctrl_c_before_the_first_step_is_done_starts_again(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "train_step", interrupt)
    out = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        train("agent", tmp_path, stream=out)
    assert out.getvalue().splitlines()[-1] == "stopped: the same command starts again"
    assert os.listdir(tmp_path) == []


def test_ctrl_c_after_a_checkpoint_names_it(tmp_path, monkeypatch):
    train("agent", tmp_path, stream=io.StringIO())
    monkeypatch.setattr(command, "fresh_loss", interrupt)
    out = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        train("agent", tmp_path, stream=out)
    assert out.getvalue().endswith(f"resumes from {tmp_path / 'checkpoint.npz'}\n")


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_model_that_cannot_be_moved_into_place_is_no_model(tmp_path, monkeypatch):
    """config.json goes last: without it nothing takes the folder for a model."""
    real = os.replace

    def failing(source, target):
        if os.path.basename(target) == "tokenizer.json":
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(UsageError, match="No space left"):
        train("agent", tmp_path, stream=io.StringIO())
    assert not (tmp_path / "config.json").exists()
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]


def test_a_file_in_the_way_of_the_folder_is_an_error_before_any_work(tmp_path):
    (tmp_path / "file").write_text("x")
    out = io.StringIO()
    for folder in (tmp_path / "file", tmp_path / "file" / "model"):
        with pytest.raises(UsageError, match="name another folder"):
            train("agent", folder, stream=out)
    assert out.getvalue() == ""


@pytest.mark.parametrize("steps", [0, -5])
def test_senseless_steps_are_refused(tmp_path, steps):
    with pytest.raises(UsageError, match="1 or more"):
        train("agent", tmp_path / "new", steps)
    assert not (tmp_path / "new").exists()


def test_more_steps_than_memory_holds_are_refused(tmp_path):
    with pytest.raises(UsageError, match="100000 or fewer"):
        train("agent", tmp_path / "new", 10**9)
    assert not (tmp_path / "new").exists()


def test_a_folder_without_a_name_is_refused():
    with pytest.raises(UsageError, match="name is empty"):
        train("agent", "", stream=io.StringIO())


def test_the_card_names_the_command_that_makes_the_model_again(tmp_path):
    train("stories", tmp_path / "a", stream=io.StringIO())
    train("stories", tmp_path / "b", 2, stream=io.StringIO())
    whole, short = ((tmp_path / f / "README.md").read_text("utf-8") for f in "ab")
    assert "`tinyllm train stories --out FOLDER`;" in whole
    assert "`tinyllm train stories --out FOLDER --steps 2`;" in short


def test_without_standard_error_nothing_is_said_on_standard_output(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("sys.stderr", None)
    train("stories", tmp_path)
    assert capsys.readouterr().out == ""


def test_an_unknown_model_is_refused_with_the_names_there_are(tmp_path):
    with pytest.raises(UsageError, match="agent, stories"):
        train("gpt", tmp_path)


def test_other_steps_than_those_begun_are_refused(tmp_path):
    train("agent", tmp_path, stream=io.StringIO())
    with pytest.raises(CheckpointError, match="another run"):
        train("agent", tmp_path, 2, io.StringIO())
