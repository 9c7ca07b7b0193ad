"""Renamed tools do what they did, and training never shows their names."""

from __future__ import annotations

import random
import re

import pytest

from tests.scripted_lm import ScriptedLM
from tinyllm.agent import protocol
from tinyllm.agent.loop import Agent
from tinyllm.errors import ToolError
from tinyllm.evaluate import held_out
from tinyllm.evaluate import renamed_tools as unseen
from tinyllm.train.corpus import AGENT, document_pieces
from tinyllm.train.tasks import FAMILIES, SIGNATURES, make


def both(family, seed, folder):
    """A held-out task and its renamed twin, each with its registry."""
    task = make(family, random.Random(seed), held=True)
    tools = held_out.registry(task, folder)
    return (task, tools), unseen.renamed(task, tools)


def test_every_tool_and_argument_of_the_corpus_has_another_name():
    known = set(SIGNATURES) - {"answer"}
    assert set(unseen.TOOLS) == known
    assert {name for tool in known for name in SIGNATURES[tool]} == set(
        unseen.ARGUMENTS
    )


def test_no_training_document_contains_a_new_name():
    rng = random.Random(11)
    shown = "\n".join("".join(document_pieces(rng, AGENT)) for _ in range(4000))
    words = set(re.findall("[a-z_]+", shown.lower()))
    assert {"calc", "expression", "read_file"} <= words
    assert words.isdisjoint({*unseen.TOOLS.values(), *unseen.ARGUMENTS.values()})


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(4))
def test_the_renamed_solution_solves_the_renamed_task(family, seed, tmp_path):
    (task, _), (other, tools) = both(family, seed, tmp_path)
    lines = []
    for move in other.moves:
        lines += [move.thought + "\n", protocol.call_text(move.tool, dict(move.args))]
    trace = Agent(ScriptedLM(*lines), tools).run(other.question)
    assert held_out.solved(other, trace), f"{other}\n{trace}"
    assert other.answer == task.answer
    assert tools.describe() == protocol.describe(other.tools)


def test_the_old_names_are_no_longer_known(tmp_path):
    (task, tools), (_, renamed) = both("calc", 0, tmp_path)
    move = task.moves[0]
    assert tools.run(move.tool, dict(move.args)) == move.observation
    with pytest.raises(ToolError, match="no tool 'calc'"):
        renamed.run(move.tool, dict(move.args))
    with pytest.raises(ToolError, match="takes formula"):
        renamed.run("evaluate", dict(move.args))


def test_answer_and_tools_of_the_task_itself_keep_their_names(tmp_path):
    seen = set()
    for seed in range(20):
        (task, _), (other, _) = both("lookup", seed, tmp_path)
        tool = task.moves[0].tool
        if tool not in SIGNATURES:
            seen.add(tool)
            assert other.moves[0] == task.moves[0]
            assert other.tools[tool] == task.tools[tool]
        assert other.tools["answer"] == ("text",)
    assert seen, "the test must meet a made-up tool"


def test_what_an_argument_needs_stays_needed(tmp_path):
    (_, tools), (_, renamed) = both("calc", 0, tmp_path)
    for old, new in zip(tools, renamed, strict=True):
        assert len(new.parameters["required"]) == len(old.parameters["required"])
        assert new.parameters["required"] == list(new.parameters["properties"])
