"""The training loop: a recipe in, weights out, with checkpoints that resume exactly.

`fit(recipe, ids, folder)` trains and returns the weights. Each step reads its own slice
of the corpus, so a step is a pure function of the weights before it: a run that was
interrupted and resumed ends where an uninterrupted one does.

Before this: `optimizer`. Next: `data/words`.
"""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tinyllm.atomic_file import atomic_file
from tinyllm.errors import CheckpointError, InferenceError, Named, UsageError
from tinyllm.model.config import Config, weight_shapes
from tinyllm.progress import ignore
from tinyllm.train.backward import Weights, loss_and_gradients
from tinyllm.train.corpus import AGENT, STORIES, Mix
from tinyllm.train.optimizer import AdamW, clip, learning_rate

CHECKPOINT = "checkpoint.npz"
# What numpy raises for a file that is not an archive, or only part of one.
_CUT = (OSError, EOFError, zipfile.BadZipFile, zlib.error, struct.error)
# An unknown zip flag, a shape larger than memory, a count that is infinite.
_IMPOSSIBLE = (RuntimeError, MemoryError, OverflowError)
DAMAGED = (*_CUT, *_IMPOSSIBLE, KeyError, TypeError, ValueError)
CONFIG = Config(
    dim=128,
    hidden_dim=384,
    n_layers=4,
    n_heads=4,
    n_kv_heads=2,
    head_dim=32,
    vocab_size=512,
    n_ctx=512,
)


@dataclass(frozen=True)
class Recipe:
    """All that decides a training run, apart from the machine's rounding.

    The rate rises to `peak_rate` and falls along a cosine; at each step in `restarts`
    it starts again with the peak given there (Loshchilov and Hutter 2017, SGDR). The
    last `long_share` of the steps before the first restart, and all steps after it,
    read windows of the full context; the others read windows of half of it, which cost
    less. A step reads `step_tokens`.
    """

    mix: str
    steps: int
    restarts: tuple[tuple[int, float], ...] = ()
    config: Config = CONFIG
    step_tokens: int = 6144
    long_share: float = 0.25
    peak_rate: float = 3e-3
    seed: int = 0

    @property
    def n_tokens(self) -> int:
        """Return how many ids the corpus must have: the last is a target only."""
        return self.steps * self.step_tokens + 1

    def window(self, step: int) -> int:
        """Return the length T of the sequences of `step`."""
        n_ctx, first = self.config.n_ctx, self._cosines[0][1]
        return n_ctx if step >= first * (1 - self.long_share) else n_ctx // 2

    def rate(self, step: int) -> float:
        """Return the learning rate of `step`."""
        begin, end, peak = next(c for c in self._cosines if step < c[1])
        return learning_rate(step - begin, end - begin, peak)

    @property
    def _cosines(self) -> list[tuple[int, int, float]]:
        """Return the first step, the end and the peak of each cosine."""
        starts = [(0, self.peak_rate), *self.restarts]
        ends = [*(begin for begin, _ in self.restarts), self.steps]
        return [(b, end, rate) for (b, rate), end in zip(starts, ends, strict=True)]


RECIPES = Named(
    "recipe",
    {
        "agent": Recipe("agent", 7000, restarts=((3000, 1.5e-3), (5000, 1e-3))),
        "stories": Recipe("stories", 300),
    },
)
MIXES: dict[str, Mix] = {"agent": AGENT, "stories": STORIES}


def initial_weights(config: Config, seed: int) -> Weights:
    """Return fresh weights, float32: normal(0, 0.02), norms at 1.

    The two output matrices of a layer are smaller by sqrt(2·L). Source: Radford et al.
    2019 (GPT-2), 2.3.
    """
    rng = np.random.default_rng(seed)
    weights = {}
    # the residual stream is a sum of 2·L outputs: so scaled, it does not grow with L
    for name, shape in weight_shapes(config).items():
        output = name.endswith(("o_proj.weight", "down_proj.weight"))
        spread = 0.02 / math.sqrt(2 * config.n_layers) if output else 0.02
        full = rng.normal(0, spread, shape) if len(shape) > 1 else np.ones(shape)
        weights[name] = full.astype(np.float32)
    return weights


def batch(recipe: Recipe, ids: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens of `step`'s own slice and those that follow, (B, T) each."""
    # no shuffling: the corpus is random already, and a resumed run needs no state
    start, size = step * recipe.step_tokens, recipe.step_tokens
    part = ids[start : start + size + 1].astype(np.int64)  # (B·T + 1,)
    t = recipe.window(step)
    return part[:-1].reshape(-1, t), part[1:].reshape(-1, t)


def fit(
    recipe: Recipe,
    ids: np.ndarray,
    folder: Path,
    report: Callable[[int, float], object] = ignore,
    every: int = 50,
) -> Weights:
    """Train by `recipe` on the corpus `ids`, with a checkpoint in `folder`.

    It calls `report(step, loss)` after each step, and writes a checkpoint every `every`
    steps and at the end; if `folder` has one, training resumes there. Ctrl-C writes one
    too, unless it comes while the weights are changing: then the steps since the last
    checkpoint are lost. Raises UsageError if the corpus does not suit the recipe,
    InferenceError if the numbers are no longer finite.
    """
    check(recipe, ids)
    weights = initial_weights(recipe.config, recipe.seed)
    optimizer = AdamW(weights)
    path = folder / CHECKPOINT
    if path.exists():  # an earlier run was stopped
        restore(path, optimizer, recipe)
    done = saved = optimizer.steps
    try:
        for step in range(done, recipe.steps):
            loss = train_step(recipe, ids, optimizer)
            done = step + 1
            report(step, loss)
            if done % every == 0 or done == recipe.steps:
                check_finite(optimizer)
                save(path, optimizer, recipe)
                saved = done
    except KeyboardInterrupt:
        # The optimizer counts a step before it changes anything: more steps than done
        # means that some weights have moved and others have not.
        if saved < done == optimizer.steps:
            check_finite(optimizer)
            save(path, optimizer, recipe)
        raise
    return weights


def check(recipe: Recipe, ids: np.ndarray) -> None:
    """Raise UsageError unless the corpus `ids` suits the recipe."""
    if len(ids) < recipe.n_tokens:
        raise UsageError(f"the recipe reads {recipe.n_tokens} tokens, not {len(ids)}")
    for t in (recipe.window(0), recipe.window(recipe.steps - 1)):
        if t < 1 or recipe.step_tokens % t:
            raise UsageError(
                f"step_tokens is {recipe.step_tokens}: give a multiple of {t}, "
                "the tokens of a window"
            )
    size = recipe.config.vocab_size
    if ids.min() < 0 or ids.max() >= size:
        raise UsageError(
            f"the corpus has ids from {ids.min()} to {ids.max()}, the vocabulary "
            f"{size}: 0 to {size - 1}"
        )


def check_finite(optimizer: AdamW) -> None:
    """Raise InferenceError unless all arrays of a checkpoint are finite."""
    if not all(np.isfinite(a).all() for a in state_arrays(optimizer).values()):
        raise _diverged(optimizer.steps, "a weight is not finite")


def _diverged(step: int, what: str) -> InferenceError:
    return InferenceError(
        f"training diverged at step {step}: {what}. This step is not saved; "
        "try a smaller peak_rate"
    )


def train_step(recipe: Recipe, ids: np.ndarray, optimizer: AdamW) -> float:
    """Train one step, in place; return the loss before it, in nats per token.

    Raises InferenceError, and changes nothing, if that loss is not finite.
    """
    step = optimizer.steps
    tokens, targets = batch(recipe, ids, step)
    loss, grads = loss_and_gradients(optimizer.weights, recipe.config, tokens, targets)
    if not math.isfinite(loss):
        raise _diverged(step + 1, f"the loss is {loss}")
    clip(grads)  # one unusual batch must not move the weights far
    optimizer.step(grads, recipe.rate(step))
    return loss


def save(path: Path, optimizer: AdamW, recipe: Recipe) -> None:
    """Write the state of a run, all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {"steps": np.array(optimizer.steps), "recipe": np.array(repr(recipe))}
    with atomic_file(path) as file:
        np.savez(file, **state, **state_arrays(optimizer))  # type: ignore[arg-type]


def restore(path: Path, optimizer: AdamW, recipe: Recipe) -> None:
    """Load the state in `path` into `optimizer`, whose weights change in place.

    Raises CheckpointError, and changes nothing, if the file is damaged or was made by
    another recipe.
    """
    arrays = state_arrays(optimizer)
    try:
        # without pickle a checkpoint is data: opening one runs no code
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            stored = {name: file[name] for name in arrays}
            steps = int(file["steps"])
            made_by = str(file["recipe"]) if "recipe" in file else repr(recipe)
    except DAMAGED as error:
        raise _not_resumable(path, f"it is damaged: {error}") from error
    if made_by != repr(recipe) or not 0 <= steps <= recipe.steps:
        raise _not_resumable(
            path, f"it belongs to another run: step {steps} of {made_by}"
        )
    # all checks come before the first change
    for name, array in arrays.items():
        if (stored[name].shape, stored[name].dtype) != (array.shape, array.dtype):
            raise _not_resumable(path, f"{name} is {stored[name].shape}")
    for name, array in arrays.items():
        array[...] = stored[name]  # in place: the caller has these very arrays
    optimizer.steps = steps


def _not_resumable(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(
        f"{path} cannot be resumed, {reason}. Delete it to start afresh, "
        "or train into another folder"
    )


def state_arrays(optimizer: AdamW) -> Weights:
    """Return the arrays of a checkpoint, under their names in it."""
    kinds = {"weights": optimizer.weights, "m": optimizer.m, "v": optimizer.v}
    return {
        f"{kind}/{name}": array
        for kind, arrays in kinds.items()
        for name, array in arrays.items()
    }
