"""Rebuild an embedded model from nothing, in one call.

`train(name, folder)` learns the tokenizer, generates the corpus, trains, and writes a
model folder that `tinyllm.load` opens. An interrupted run can be resumed.

Before this: `corpus`. Next: `verify`, which shows that the cache of a model is right.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from tinyllm.atomic_file import atomic_file, writable
from tinyllm.errors import UsageError
from tinyllm.progress import Progress
from tinyllm.text.bpe import BPE
from tinyllm.train import corpus
from tinyllm.train.backward import Weights, loss_and_gradients
from tinyllm.train.loop import CHECKPOINT, MIXES, RECIPES, Recipe, batch, fit
from tinyllm.train.operations import Array

TOKENIZER_SEED, CORPUS_SEED, FRESH_SEED = 0, 1, 2  # fresh: for the final loss
MAX_STEPS = 100_000  # the corpus, made before the first step, is in memory

CARD = """\
# {name}

A Llama of {parameters:,} parameters, trained by tinyllm's own numpy trainer on text
that tinyllm generates ({about}). It was made by
`{command}`; the same command makes it again.

- sizes: {sizes}
- corpus: {tokens:,} tokens, SHA-256 of the ids (little-endian uint16)
  `{checksum}`
- training: {steps} steps of {step_tokens} tokens, AdamW, seed {seed}
- loss on {step_tokens} tokens of the same kind that it has not read: {loss:.3f} nats
  a token
- weights: safetensors, float16; tokenizer: byte-level BPE of {vocab_size} ids

It knows the tasks and the stories of its corpus and nothing else. Text, code and
weights are under the license of the package.
"""
ABOUT = {
    "agent": "tool-use transcripts and simple stories",
    "stories": "simple stories only, for comparison",
}


def train(
    name: str,
    folder: str | os.PathLike[str],
    steps: int | None = None,
    stream: TextIO | None = None,
) -> Path:
    """Train the model `name` ("agent" or "stories") and return its `folder`.

    `steps` shortens the recipe, to try it out. Progress goes to `stream` (standard
    error, unless the process has none). Ctrl-C saves the steps that are done, says how
    to resume and is raised again. Raises UsageError for an unknown name, impossible
    steps or a folder that cannot be written, CheckpointError for a checkpoint of
    another run, InferenceError for numbers that are no longer finite.
    """
    out = sys.stderr if stream is None else stream
    recipe, target = recipe_of(name, steps), writable(folder)
    try:
        _train(name, recipe, target, out)
    except KeyboardInterrupt:  # fit has saved its state by now
        begun = (target / CHECKPOINT).exists()
        how = f"resumes from {target / CHECKPOINT}" if begun else "starts again"
        _say(out, f"stopped: the same command {how}")
        raise
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}") from error
    return target


def recipe_of(name: str, steps: int | None = None) -> Recipe:
    """Return the recipe of a named model, with other `steps` if given; UsageError."""
    recipe = RECIPES[name]
    if steps is not None and steps < 1:
        raise UsageError(f"{steps} steps train nothing: give 1 or more")
    if steps is not None and steps > MAX_STEPS:
        raise UsageError(f"{steps} steps are too many: give {MAX_STEPS} or fewer")
    # a shorter run has no time for restarts
    return recipe if steps is None else replace(recipe, steps=steps, restarts=())


def _train(name: str, recipe: Recipe, folder: Path, out: TextIO | None) -> None:
    _say(out, "learning the tokenizer")
    tokenizer = corpus.learn_tokenizer(TOKENIZER_SEED, recipe.config.vocab_size)
    with Progress(recipe.n_tokens, "corpus", "tokens", out) as progress:
        ids = corpus.build(
            tokenizer, recipe.n_tokens, CORPUS_SEED, MIXES[recipe.mix], progress.update
        )
    checksum = corpus.checksum(ids)  # shows at once whether it is the usual corpus
    _say(out, f"corpus of {len(ids):,} tokens, SHA-256 {checksum}")
    weights = _fit(recipe, ids, folder, out)
    loss = fresh_loss(recipe, weights, tokenizer)
    text = card(name, recipe, weights, checksum, loss)
    _publish(recipe, folder, weights, tokenizer, text)
    _say(out, f"{folder} is ready; {CHECKPOINT} in it may be deleted")


def _fit(recipe: Recipe, ids: Array, folder: Path, out: TextIO | None) -> Weights:
    total = recipe.steps * recipe.step_tokens
    with Progress(total, "training", "tokens", out) as progress:

        def report(step: int, loss: float) -> None:
            note = f"step {step + 1} of {recipe.steps}, loss {loss:.4f}"
            progress.update((step + 1) * recipe.step_tokens, note)

        return fit(recipe, ids, folder, report)


def fresh_loss(recipe: Recipe, weights: Weights, tokenizer: BPE) -> float:
    """Return the loss, in nats per token, on text that no training step reads."""
    ids = corpus.build(tokenizer, recipe.step_tokens + 1, FRESH_SEED, MIXES[recipe.mix])
    tokens, targets = batch(
        replace(recipe, steps=1, restarts=(), long_share=1.0), ids, 0
    )
    return loss_and_gradients(weights, recipe.config, tokens, targets)[0]


def card(
    name: str, recipe: Recipe, weights: Weights, checksum: str, loss: float
) -> str:
    """Return the README of a model: what it is, and how to make it again."""
    c = recipe.config
    sizes = (
        f"dim {c.dim}, hidden {c.hidden_dim}, {c.n_layers} layers, {c.n_heads} heads, "
        f"{c.n_kv_heads} key/value heads of {c.head_dim}, {c.n_ctx} positions"
    )
    return CARD.format(
        name=name,
        command=command_of(name, recipe),
        about=ABOUT[recipe.mix],
        parameters=sum(w.size for w in weights.values()),
        sizes=sizes,
        tokens=recipe.n_tokens,
        checksum=checksum,
        steps=recipe.steps,
        step_tokens=recipe.step_tokens,
        seed=recipe.seed,
        loss=loss,
        vocab_size=c.vocab_size,
    )


def command_of(name: str, recipe: Recipe) -> str:
    """Return the command that makes this model."""
    steps = "" if recipe == RECIPES[name] else f" --steps {recipe.steps}"
    return f"tinyllm train {name} --out FOLDER{steps}"


def _publish(
    recipe: Recipe, folder: Path, weights: Weights, tokenizer: BPE, text: str
) -> None:
    """Write the files of the model; config.json comes last.

    Until it is there, the folder does not open as a model.
    """
    with atomic_file(folder / "README.md") as file:
        file.write(text.encode())
    from tinyllm.formats.hf_folder import save_folder  # a file format: not the course

    save_folder(folder, recipe.config, weights, tokenizer, "F16")


def _say(out: TextIO | None, text: str) -> None:
    if out is not None:  # print would take None for standard output
        print(text, file=out, flush=True)
