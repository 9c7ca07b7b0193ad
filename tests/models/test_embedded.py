"""The models inside the package: small, whole, and as able as the README says."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pytest

import tinyllm
from tinyllm.evaluate.held_out import measure
from tinyllm.formats.safetensors import read
from tinyllm.models.find import find
from tinyllm.train.tasks import FAMILIES

MODELS = ("agent", "stories")


@pytest.fixture(scope="module")
def lm():
    return tinyllm.load(exact=False)


@pytest.mark.parametrize(("name", "megabytes"), [("agent", 4), ("stories", 2)])
def test_a_model_is_within_its_size_and_has_a_card(name, megabytes):
    files = {path.name: path.stat().st_size for path in find(name).iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json", "README.md"} == set(
        files
    )
    assert sum(files.values()) <= megabytes * 2**20


@pytest.mark.parametrize("name", MODELS)
def test_the_card_names_the_number_of_parameters(name):
    weights = read(find(name) / "model.safetensors")
    count = sum(math.prod(w.shape) for w in weights.values())
    assert f"{count:,} parameters" in (find(name) / "README.md").read_text("utf-8")


def test_both_models_have_one_shape_and_one_tokenizer():
    agent, stories = (find(name) for name in MODELS)
    assert (agent / "tokenizer.json").read_bytes() == (
        stories / "tokenizer.json"
    ).read_bytes()
    assert tinyllm.load("agent").config == tinyllm.load("stories").config


def test_nothing_becomes_float64_on_the_way(lm):
    weights = read(find("agent") / "model.safetensors")
    assert {np.asarray(w).dtype for w in weights.values()} == {np.dtype(np.float32)}
    session = lm.session()
    assert session.feed([1, 5, 9]).dtype == np.float32
    assert session.extend([7]).dtype == np.float32
    assert session.cache.k.dtype == session.cache.v.dtype == np.float32


@pytest.mark.parametrize("family", FAMILIES)
def test_most_held_out_tasks_are_solved(lm, family):
    score = measure(lm, family, 25, seed=11)
    assert score.solved >= 21, [task.question for task, _ in score.failures]


def test_the_story_model_tells_stories_and_solves_nothing():
    stories = tinyllm.load("stories", exact=False)
    told = stories.generate("Once upon a time", max_new_tokens=60).text
    assert told.startswith(" there was a little ")
    score = measure(stories, "calc", 10, seed=11)
    assert score.solved == 0


def test_exact_and_fast_agree_on_the_embedded_model(lm):
    exact = tinyllm.load("agent")
    ids = [1, *exact.tokenizer.encode("TOOLS: calc(expression)\nTASK: What is 2 + 2?")]
    difference = exact.model.forward(ids) - lm.model.forward(ids)
    assert float(abs(difference).max()) < 1e-4


def test_the_core_imports_numpy_and_regex_and_nothing_heavier():
    code = (
        "import json, sys, tinyllm; before = set(sys.modules)\n"
        "tinyllm.Agent(tinyllm.load()).run('What is 2 + 2?')\n"
        "print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(json.loads(done.stdout))
    assert {"numpy", "regex"} <= loaded
    heavy = {"matplotlib", "ipywidgets", "IPython", "jupyterlab", "torch", "tokenizers"}
    assert not loaded & (
        heavy | {"safetensors", "transformers", "hypothesis", "pandas"}
    )
