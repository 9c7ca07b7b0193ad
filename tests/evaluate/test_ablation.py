"""The ablation: what an outcome counts, and what may not change it."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import tinyllm
from tests.scripted_lm import ScriptedLM, call, untrained_lm
from tinyllm.agent.local import LocalBackend
from tinyllm.agent.loop import Agent
from tinyllm.agent.protocol import call_text
from tinyllm.errors import UsageError
from tinyllm.evaluate import held_out
from tinyllm.evaluate.ablation import (
    ARMS,
    CONDITIONS,
    Outcome,
    differing,
    judged,
    outcomes,
    sample,
)
from tinyllm.train.tasks import FAMILIES, make

TRAINED = CONDITIONS["trained"]


@pytest.fixture(scope="module")
def agent_lm():
    return tinyllm.load()


@pytest.fixture(scope="module")
def story_lm():
    return tinyllm.load("stories")


def outcome(task, folder, *calls):
    """What a free run comes to in which the model writes these calls."""
    lines = [line for text in calls for line in ("hm\n", text + "\n")]
    tools = held_out.registry(task, folder)
    agent = Agent(ScriptedLM(*lines), tools, len(calls), constrain=False)
    return judged(0, task, tools, agent.run(task.question))


@pytest.fixture
def task():
    found = make("calc", random.Random(3), held=True)
    return replace(found, tools={"calc": ("expression",), "answer": ("text",)})


def verdicts(found):
    """The five things that are counted, as letters."""
    names = ("parsed", "valid", "right_tool", "right_args", "solved")
    return "".join(n[-1] if getattr(found, n) else "-" for n in names)


def test_each_verdict_says_one_thing_and_is_lost_by_one_fault(task, tmp_path):
    first, last = (call_text(m.tool, dict(m.args)) for m in task.moves)
    right = task.moves[0].args["expression"]
    cases = {
        "all is right": ((first, last), "ddlsd"),
        "another way to the same answer": (
            (call("calc", expression=f"({right})"), last),
            "ddl-d",
        ),
        "no JSON at first": (("calc it", first, last), "----d"),
        "an unknown tool at first": ((call("nix", a="b"), first, last), "d---d"),
        "arguments that misfit": ((call("calc", x="1"), first, last), "d-l-d"),
        "the wrong tool": ((last,), "dd---"),
        "the wrong answer": ((first, call("answer", text="0")), "ddls-"),
        "the answer without the tool": ((last, last), "dd---"),
    }
    for name, (calls, expected) in cases.items():
        assert verdicts(outcome(task, tmp_path, *calls)) == expected, name


def test_a_run_without_any_call_counts_as_neither_parsed_nor_valid(task, tmp_path):
    tools = held_out.registry(task, tmp_path)
    trace = Agent(ScriptedLM("hm\n", ""), tools, 1, constrain=False).run("x")
    empty = replace(trace, steps=())
    assert verdicts(judged(0, task, tools, empty)) == "-----"


def test_an_outcome_adds_up_what_the_steps_cost(tmp_path):
    first, second = held_out.tasks("calc", 2, 0)
    script = []
    for task in (first, second):
        for move in task.moves:
            script += ["hm\n", call_text(move.tool, dict(move.args))]
    lm = ScriptedLM(*script)
    one, two = outcomes(lm, TRAINED, ARMS["mask"], "calc", 2)
    tools = held_out.registry(second, tmp_path)
    trace = Agent(ScriptedLM(*script[4:]), tools).run(second.question)
    assert (two.number, two.solved) == (1, True)
    assert two.tokens == sum(step.tokens for step in trace.steps) > 0
    assert two.forwarded == sum(step.forwarded for step in trace.steps)
    assert one.forwarded + two.forwarded == lm.only.forwarded
    masses = [step.mass_kept for step in trace.steps]
    assert two.mass_kept == pytest.approx(sum(masses) / 2, abs=1e-4)


def test_an_arm_differs_from_the_free_one_in_one_thing():
    free = ARMS["free"]
    assert (free.instruction, free.options) == ("", {"constrain": False})
    assert ARMS["instructed"].options == free.options
    assert ARMS["instructed"].instruction
    assert ARMS["retry"].options == free.options | {"attempts": 4}
    assert (ARMS["mask"].instruction, ARMS["mask"].options) == ("", {})


def test_the_mask_gives_syntax_to_a_model_that_knows_nothing_else(story_lm):
    for family in FAMILIES:
        free, mask = (
            list(outcomes(story_lm, CONDITIONS["story-only"], ARMS[arm], family, 1))
            for arm in ("free", "mask")
        )
        assert [(o.parsed, o.solved) for o in free] == [(False, False)]
        assert [(o.parsed, o.valid, o.solved) for o in mask] == [(True, True, False)]
        assert mask[0].mass_kept < 0.9
        assert free[0].mass_kept is None


def test_the_mask_gives_syntax_to_random_weights_at_any_temperature():
    lm = untrained_lm(1024)
    for condition in (TRAINED, CONDITIONS["temperature-1"], CONDITIONS["unseen-tools"]):
        for found in outcomes(lm, condition, ARMS["mask"], "calc", 2):
            assert found.valid


def test_a_trained_model_needs_no_mask_on_what_it_was_trained_for(agent_lm):
    for arm in ("free", "mask"):
        found = list(outcomes(agent_lm, TRAINED, ARMS[arm], "calc", 4))
        assert all(o.valid and o.solved for o in found), arm


def test_under_other_names_a_free_call_misfits_and_a_masked_one_cannot(agent_lm):
    unseen = CONDITIONS["unseen-tools"]
    free, mask = (
        list(outcomes(agent_lm, unseen, ARMS[arm], "calc", 4))
        for arm in ("free", "mask")
    )
    assert all(o.parsed for o in free)
    assert not all(o.valid for o in free)
    assert all(o.valid for o in mask)


@pytest.mark.parametrize("name", ["retry", "mask"])
def test_an_outcome_depends_on_nothing_that_was_run_before_it(agent_lm, name):
    hot, arm = CONDITIONS["temperature-1"], ARMS[name]
    whole = list(outcomes(agent_lm, hot, arm, "direct", 4))
    assert list(outcomes(agent_lm, hot, arm, "direct", 4, first=2)) == whole[2:]
    assert list(outcomes(agent_lm, hot, arm, "direct", 2)) == whole[:2]
    assert [o.number for o in whole] == [0, 1, 2, 3]


@pytest.mark.parametrize("field", ["tokens", "forwarded", "solved"])
def test_a_cold_run_finds_an_outcome_that_is_not_its_own(agent_lm, field):
    mask = ARMS["mask"]
    found = list(outcomes(agent_lm, TRAINED, mask, "calc", 3))
    assert differing(agent_lm, TRAINED, mask, found) == []
    wrong = replace(found[1], **{field: getattr(found[1], field) + 1})
    assert differing(agent_lm, TRAINED, mask, [found[0], wrong]) == [wrong]


def test_the_sample_is_a_twentieth_of_the_tasks_that_others_came_before():
    one = Outcome("calc", 0, 2, 2, 2, True, True, False, 50, 130, 0.9, "answered")
    found = [replace(one, number=n) for n in range(40)]
    assert len(sample(found, 0)) == 2
    assert sample(found, 0) == sample(found, 0) != sample(found, 1)
    assert [outcome.number for outcome in sample(found[:2], 0)] == [1]
    assert sample(found[:1], 0) == sample([], 0) == []


def test_each_task_has_a_seed_of_its_own():
    lm, hot = untrained_lm(1024), CONDITIONS["temperature-1"]
    found = list(outcomes(lm, hot, ARMS["mask"], "direct", 3))
    other = list(outcomes(lm, hot, ARMS["mask"], "direct", 3, seed=1))
    assert found != other
    assert len({o.tokens for o in found}) > 1


def test_the_cost_of_a_step_that_the_context_cut_short_counts_as_well(story_lm):
    (found,) = outcomes(story_lm, CONDITIONS["story-only"], ARMS["mask"], "read", 1)
    task = next(held_out.tasks("read", 1, 0))
    assert found.reason == "context_full"
    with TemporaryDirectory() as folder:
        backend = LocalBackend(story_lm, held_out.registry(task, Path(folder)))
        trace = Agent(backend, max_steps=5).run(task.question)
    assert found.tokens == backend.tokens > sum(step.tokens for step in trace.steps)
    assert found.forwarded == backend.session.forwarded
    assert found.forwarded > sum(step.forwarded for step in trace.steps)


def test_the_same_task_under_another_number_draws_other_tokens(monkeypatch):
    task = make("direct", random.Random(5), held=True)
    monkeypatch.setattr(held_out, "tasks", lambda family, n, seed: iter([task] * n))
    hot = CONDITIONS["temperature-1"]
    found = list(outcomes(untrained_lm(1024), hot, ARMS["mask"], "direct", 4))
    assert len({o.tokens for o in found}) > 1


def test_right_arguments_to_the_wrong_tool_are_not_right(tmp_path):
    task = make("remember", random.Random(3), held=True)
    outcome_ = outcome(task, tmp_path, call("answer", **dict(task.moves[0].args)))
    assert not outcome_.right_tool
    assert not outcome_.right_args


@pytest.mark.parametrize(
    ("named", "said"),
    [
        (ARMS, "no arm 'masks': there are free, instructed, retry, mask"),
        (CONDITIONS, "no condition 'masks': there are trained, story-only, unseen"),
        (FAMILIES, "no family 'masks': there are calc, read, read_calc, direct"),
    ],
)
def test_an_unknown_name_is_refused_with_those_that_are_known(named, said):
    with pytest.raises(UsageError, match=said):
        named["masks"]
    assert "masks" not in named
    assert named.get("masks") is None


def test_an_unknown_family_is_a_sentence_wherever_it_is_given(agent_lm):
    for ask in (
        lambda: make("calk", random.Random(0), held=True),
        lambda: held_out.measure(agent_lm, "calk", 1),
        lambda: list(outcomes(agent_lm, TRAINED, ARMS["free"], "calk", 1)),
    ):
        with pytest.raises(UsageError, match="no family 'calk': there are calc, read"):
            ask()
