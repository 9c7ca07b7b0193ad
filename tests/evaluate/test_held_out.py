"""Counting solved tasks, judged by scripted agents that do right or almost right."""

from __future__ import annotations

import random

import pytest

from tests.scripted_lm import ScriptedLM, untrained_lm
from tinyllm.agent.loop import Agent
from tinyllm.agent.protocol import call_text
from tinyllm.evaluate import held_out
from tinyllm.train.tasks import FAMILIES, make


def played(task, moves, folder):
    """The trace of an agent whose model writes exactly these moves."""
    lines = []
    for move in moves:
        lines += [move.thought + "\n", call_text(move.tool, dict(move.args))]
    return Agent(ScriptedLM(*lines), held_out.registry(task, folder)).run(task.question)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(5))
def test_the_solution_of_a_task_counts_as_solved(family, seed, tmp_path):
    task = make(family, random.Random(seed), held=True)
    trace = played(task, task.moves, tmp_path)
    assert held_out.solved(task, trace), f"{task}\n{trace}"


def test_the_right_answer_without_the_tools_it_needs_is_not_solved(tmp_path):
    task = make("read_calc", random.Random(1), held=True)
    guessed = played(task, task.moves[-1:], tmp_path)
    assert guessed.answer == task.answer
    assert not held_out.solved(task, guessed)


@pytest.mark.parametrize("spoil", [lambda s: s + " ", lambda s: s[:-1], str.swapcase])
def test_an_answer_that_differs_in_one_place_is_not_solved(spoil, tmp_path):
    task = make("direct", random.Random(2), held=True)
    trace = played(task, task.moves, tmp_path)
    almost = type(trace)(
        trace.task, spoil(trace.answer), trace.steps, trace.reason, trace.token_ids
    )
    assert held_out.solved(task, trace)
    assert not held_out.solved(task, almost)


def test_an_untrained_model_solves_nothing_and_every_task_is_counted():
    told = []
    score = held_out.measure(untrained_lm(), "calc", 4, progress=told.append)
    assert (score.tasks, score.solved, len(score.failures)) == (4, 0, 4)
    assert told == [1, 2, 3, 4]
    assert score.interval[0] == 0
    assert "0 of    4" in str(score)


def test_the_same_seed_asks_the_same_questions_and_another_seed_asks_others():
    def questions(seed):
        score = held_out.measure(untrained_lm(), "direct", 3, seed=seed)
        return [task.question for task, _ in score.failures]

    assert questions(0) == questions(0)
    assert questions(0) != questions(1)
