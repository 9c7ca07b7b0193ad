from __future__ import annotations

import io
import os
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from tinyllm.errors import CheckpointError, InferenceError, UsageError
from tinyllm.model.config import Config, weight_shapes
from tinyllm.train import loop
from tinyllm.train.loop import CHECKPOINT, Recipe, batch, fit, initial_weights

CONFIG = Config(
    dim=16,
    hidden_dim=24,
    n_layers=2,
    n_heads=4,
    n_kv_heads=2,
    head_dim=4,
    vocab_size=32,
    n_ctx=16,
)
RECIPE = Recipe("agent", steps=8, config=CONFIG, step_tokens=64, long_share=0.25)
IDS = np.tile(np.arange(5, 15, dtype=np.uint16), 200)[: RECIPE.n_tokens]


def same(a, b) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[n], b[n]) for n in a)


def stop_at(step: int):
    """A report that acts like Ctrl-C after `step`."""

    def report(now: int, loss: float) -> None:
        if now == step:
            raise KeyboardInterrupt

    return report


def test_initial_weights_are_float32_seeded_and_of_the_models_shapes():
    weights = initial_weights(CONFIG, 0)
    assert {n: w.shape for n, w in weights.items()} == weight_shapes(CONFIG)
    assert {w.dtype for w in weights.values()} == {np.dtype(np.float32)}
    assert same(weights, initial_weights(CONFIG, 0))
    assert not same(weights, initial_weights(CONFIG, 1))


def test_initial_spreads_are_smaller_for_the_two_outputs_of_a_layer():
    weights = initial_weights(loop.CONFIG, 0)
    spread = {n.split(".")[-2]: w.std() for n, w in weights.items() if w.ndim > 1}
    assert spread["up_proj"] == pytest.approx(0.02, rel=0.02)
    assert spread["down_proj"] == pytest.approx(0.02 / 8**0.5, rel=0.02)
    assert spread["o_proj"] == pytest.approx(0.02 / 8**0.5, rel=0.02)
    assert all((w == 1).all() for w in weights.values() if w.ndim == 1)


def test_initial_weights_never_change():
    """The embedded model began at these numbers; another order of draws would not."""
    weights = initial_weights(loop.CONFIG, 0)
    first = weights["model.embed_tokens.weight"][0, :2]
    last = weights["model.layers.3.mlp.down_proj.weight"][-1, -2:]
    frozen = [0.0025146045, -0.0026420972, 0.010433859, 0.013483091]
    np.testing.assert_allclose([*first, *last], frozen, rtol=1e-6)


def test_targets_are_the_tokens_that_follow():
    tokens, targets = batch(RECIPE, np.arange(513, dtype=np.uint16), 1)
    assert tokens.shape == (8, 8)
    assert tokens.ravel().tolist() == list(range(64, 128))
    assert targets.ravel().tolist() == list(range(65, 129))


def test_the_last_quarter_of_the_steps_reads_the_whole_context():
    shapes = [batch(RECIPE, IDS, step)[0].shape for step in range(8)]
    assert shapes == [(8, 8)] * 6 + [(4, 16)] * 2


def test_each_token_of_the_corpus_is_read_once():
    ids = np.arange(RECIPE.n_tokens, dtype=np.uint16)
    read = np.concatenate([batch(RECIPE, ids, step)[0].ravel() for step in range(8)])
    assert read.tolist() == list(range(8 * 64))


def test_the_loss_falls_on_a_tiny_corpus(tmp_path):
    losses: list[float] = []
    recipe = replace(RECIPE, steps=30, peak_rate=0.3)
    ids = np.tile(IDS, 4)[: recipe.n_tokens]
    fit(recipe, ids, tmp_path, lambda step, loss: losses.append(loss))
    assert losses[0] == pytest.approx(np.log(32), rel=0.02)
    assert losses[-1] < 0.5


def test_a_resumed_run_ends_bit_for_bit_where_an_uninterrupted_one_does(tmp_path):
    whole = fit(RECIPE, IDS, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fit(RECIPE, IDS, tmp_path / "parts", stop_at(4), every=2)
    steps: list[int] = []
    again = fit(RECIPE, IDS, tmp_path / "parts", lambda step, _: steps.append(step), 2)
    assert steps == [5, 6, 7]  # step 4 was done when Ctrl-C came, so it was saved
    assert same(whole, again)


def interrupted_in_the_update(tmp_path, monkeypatch, at: int) -> list[int]:
    """Ctrl-C amid the weights of step `at`; then the steps that are done again."""
    real = loop.AdamW.step

    def half(self, grads, lr):
        if self.steps == at:
            real(self, dict(list(grads.items())[:3]), lr)
            raise KeyboardInterrupt
        real(self, grads, lr)

    with monkeypatch.context() as patch:
        patch.setattr(loop.AdamW, "step", half)
        with pytest.raises(KeyboardInterrupt):
            fit(RECIPE, IDS, tmp_path, every=2)
    steps: list[int] = []
    again = fit(RECIPE, IDS, tmp_path, lambda step, _: steps.append(step))
    assert same(again, fit(RECIPE, IDS, tmp_path.with_name("whole")))
    return steps


def test_a_half_changed_state_is_never_saved(tmp_path, monkeypatch):
    steps = interrupted_in_the_update(tmp_path / "parts", monkeypatch, at=5)
    assert steps == [4, 5, 6, 7]  # from the checkpoint after four steps


def test_ctrl_c_amid_the_first_step_saves_nothing(tmp_path, monkeypatch):
    steps = interrupted_in_the_update(tmp_path / "parts", monkeypatch, at=0)
    assert steps == list(range(8))


def test_ctrl_c_while_gradients_are_worked_out_saves_the_steps_before(
    tmp_path, monkeypatch
):
    calls = iter([loop.clip] * 3)
    monkeypatch.setattr(loop, "clip", lambda grads: next(calls, interrupt)(grads))
    with pytest.raises(KeyboardInterrupt):
        fit(RECIPE, IDS, tmp_path)
    with np.load(tmp_path / CHECKPOINT) as file:
        assert int(file["steps"]) == 3


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_loss_that_is_not_finite_stops_the_run_and_is_not_saved(
    tmp_path, monkeypatch
):
    real = loop.loss_and_gradients
    calls = iter(range(8))

    def broken(*given):
        loss, grads = real(*given)
        return (float("nan") if next(calls) == 3 else loss), grads

    monkeypatch.setattr(loop, "loss_and_gradients", broken)
    with pytest.raises(InferenceError, match=r"at step 4: the loss is nan.*smaller"):
        fit(RECIPE, IDS, tmp_path, every=2)
    with np.load(tmp_path / CHECKPOINT) as file:
        assert int(file["steps"]) == 2


@pytest.mark.parametrize("stop", [False, True])
def test_weights_that_are_not_finite_are_never_saved(tmp_path, monkeypatch, stop):
    def ruin(grads):
        grads["model.norm.weight"][0] = np.nan

    monkeypatch.setattr(loop, "clip", ruin)
    report = stop_at(0) if stop else stop_at(-1)
    with pytest.raises(InferenceError, match="at step 1: a weight is not finite"):
        fit(RECIPE, IDS, tmp_path, report, every=1)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("size", [72, 60, 1])
def test_a_step_that_windows_do_not_divide_is_refused_before_any_work(tmp_path, size):
    with pytest.raises(UsageError, match=f"step_tokens is {size}: give a multiple of"):
        fit(replace(RECIPE, step_tokens=size), IDS.repeat(2), tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("bad", [32, 60_000, -1])
def test_ids_outside_the_vocabulary_are_refused_before_any_work(tmp_path, bad):
    ids = IDS.astype(np.int64)
    ids[-1] = bad
    with pytest.raises(UsageError, match=f"{bad}.* 0 to 31"):
        fit(RECIPE, ids, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_finished_run_is_not_run_again(tmp_path):
    weights = fit(RECIPE, IDS, tmp_path)
    assert same(fit(RECIPE, IDS, tmp_path, stop_at(0)), weights)


def test_a_checkpoint_holds_numbers_and_no_pickle(tmp_path):
    fit(RECIPE, IDS, tmp_path)
    with np.load(tmp_path / CHECKPOINT, allow_pickle=False) as file:
        assert int(file["steps"]) == 8
        assert file["m/model.norm.weight"].dtype == np.float32
        assert len(file.files) == 2 + 3 * len(weight_shapes(CONFIG))


def test_a_checkpoint_that_does_not_name_its_recipe_is_resumed(tmp_path):
    """Checkpoints written before recipes were in them stay readable."""
    with pytest.raises(KeyboardInterrupt):
        fit(RECIPE, IDS, tmp_path, stop_at(4), every=2)
    with np.load(tmp_path / CHECKPOINT) as file:
        old = {name: file[name] for name in file.files if name != "recipe"}
    np.savez(tmp_path / CHECKPOINT, **old)
    fit(RECIPE, IDS, tmp_path)


@pytest.mark.parametrize(
    "other",
    [{"steps": 6}, {"seed": 1}, {"peak_rate": 1.0}, {"config": replace(CONFIG, dim=8)}],
)
def test_a_checkpoint_of_another_recipe_is_refused(tmp_path, other):
    fit(RECIPE, IDS, tmp_path)
    with pytest.raises(CheckpointError, match=r"belongs to another run.*Delete it"):
        fit(replace(RECIPE, **other), IDS, tmp_path)


FLAGS = {"encrypted": 0x01, "patched": 0x20}  # zip, 4.4.4


def damaged(path, kind: str) -> None:
    data = path.read_bytes()
    if kind == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "array":
        np.save(path.with_suffix(".npy"), np.ones(3))
        os.replace(path.with_suffix(".npy"), path)
    elif kind == "text":
        path.write_bytes(b"hello")
    elif kind in FLAGS:  # of the first entry: in its own header and in the directory
        flagged = bytearray(data)
        for at in (6, data.index(b"PK\1\2") + 8):
            flagged[at] |= FLAGS[kind]
        path.write_bytes(flagged)
    elif kind == "bits":
        path.write_bytes(data[:3000] + bytes(200) + data[3200:])
    else:
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        name = "m/model.layers.1.mlp.up_proj.weight"
        if kind == "lacks":
            del arrays[name]
        elif kind == "row":  # numpy would spread one row over the whole matrix
            arrays[name] = arrays[name][:1]
        elif kind == "double":
            arrays[name] = arrays[name].astype(np.float64)
        elif kind == "steps":
            arrays["steps"] = np.array(-1)
        elif kind == "infinite steps":
            arrays["steps"] = np.array(np.inf)
        np.savez(path, **arrays)
        if kind == "huge":
            header = {"descr": "<f4", "fortran_order": False, "shape": (10**15,)}
            with zipfile.ZipFile(path, "w") as archive, io.BytesIO() as raw:
                np.lib.format.write_array_header_1_0(raw, header)
                archive.writestr(next(iter(arrays)) + ".npy", raw.getvalue())


@pytest.mark.parametrize(
    "kind",
    [
        *("cut", "empty", "text", "array", "bits", "lacks", "row", "double", "steps"),
        *("infinite steps", "huge", "encrypted", "patched"),
    ],
)
def test_a_damaged_checkpoint_is_refused_and_changes_nothing(tmp_path, kind):
    fit(RECIPE, IDS, tmp_path)
    damaged(tmp_path / CHECKPOINT, kind)
    optimizer = loop.AdamW(initial_weights(CONFIG, 0))
    with pytest.raises(CheckpointError, match="cannot be resumed"):
        loop.restore(tmp_path / CHECKPOINT, optimizer, RECIPE)
    assert same(optimizer.weights, initial_weights(CONFIG, 0))
    assert optimizer.steps == 0


def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        fit(RECIPE, IDS, tmp_path, stop_at(2), every=2)
    before = (tmp_path / CHECKPOINT).read_bytes()

    def interrupted(file, **arrays):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit(RECIPE, IDS, tmp_path)
    assert os.listdir(tmp_path) == [CHECKPOINT]
    assert (tmp_path / CHECKPOINT).read_bytes() == before


def test_a_corpus_that_is_too_short_is_refused_before_any_work(tmp_path):
    with pytest.raises(UsageError, match="513 tokens, not 512"):
        fit(RECIPE, IDS[:-1], tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_each_restart_begins_a_cosine_with_long_windows():
    restarts = ((600, 1e-3), (1000, 5e-4))
    recipe = Recipe("agent", steps=1200, config=CONFIG, restarts=restarts)
    assert recipe.rate(599) == pytest.approx(0.05 * recipe.peak_rate, rel=0.01)
    assert recipe.rate(600) == pytest.approx(1e-5)  # the first step of a warm-up
    assert recipe.rate(700) == pytest.approx(1e-3)
    assert recipe.rate(999) == pytest.approx(5e-5, rel=0.01)
    assert recipe.rate(1000) == pytest.approx(5e-6)
    assert recipe.rate(1100) == pytest.approx(5e-4)
    assert recipe.rate(1199) == pytest.approx(2.5e-5, rel=0.02)
    assert recipe.window(449) == CONFIG.n_ctx // 2
    assert {recipe.window(step) for step in (450, 599, 600, 1199)} == {CONFIG.n_ctx}
