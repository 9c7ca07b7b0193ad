from __future__ import annotations

import random
import re
from functools import cache

import pytest

from tests.trained_tokenizer import tokenizer
from tinyllm.agent import protocol, tools
from tinyllm.agent.tools import Registry, Tool
from tinyllm.train import tasks
from tinyllm.train.corpus import task_pieces
from tinyllm.train.data import phrases
from tinyllm.train.data.phrases import FAILED, NO_TOOL
from tinyllm.train.data.words import held_out
from tinyllm.train.tasks import FAMILIES, Task, make

EACH = 400  # tasks of each family and side
FAMILY = pytest.mark.parametrize("family", FAMILIES)
SIDE = pytest.mark.parametrize("held", [False, True], ids=["training", "evaluation"])


@cache
def sample(family: str, held: bool) -> list[Task]:
    rng = random.Random(f"{family} {held}")
    return [make(family, rng, held) for _ in range(EACH)]


def questions(family: str, held: bool) -> set[str]:
    return {task.question for task in sample(family, held)}


def called(name: str, args: dict[str, str], replies: list[str], root) -> Tool:
    """The package's own tool of that name, or one that gives the scripted reply."""
    own = {
        "calc": lambda: Tool.of(tools.calc),
        "read_file": lambda: tools.read_file(root),
        "list_files": lambda: tools.list_files(root),
        "remember": lambda: tools.remember([]),
        "answer": lambda: Tool.of(tools.answer),
    }
    if name in own:
        return own[name]()
    schema = {"type": "object", "properties": {a: {"type": "string"} for a in args}}
    return Tool(
        name,
        "Scripted.",
        schema | {"required": list(args), "additionalProperties": False},
        lambda **_: replies[0],
    )


def registry(task: Task, root) -> Registry:
    replies = [m.observation for m in task.moves if m.observation is not None]
    found = [
        called(name, dict.fromkeys(a, ""), replies, root)
        for name, a in task.tools.items()
    ]
    return Registry(found)


@SIDE
@FAMILY
def test_the_moves_solve_the_task_with_the_real_tools(family, held, tmp_path):
    for i, task in enumerate(sample(family, held)):
        root = tmp_path / str(i)
        root.mkdir()
        for name, text in task.files.items():
            (root / name).write_text(text, encoding="utf-8")
        live = registry(task, root)
        for move in task.moves:
            said = live.run(move.tool, move.args) if task.answer != FAILED else None
            if said is None:  # an unreadable file, in training alone
                assert not held
                assert (
                    live.call(*(task.moves[0].tool, task.moves[0].args))[:6] == "error:"
                )
                break
            assert said == (task.answer if move.tool == "answer" else move.observation)


@SIDE
@FAMILY
def test_only_the_last_move_answers(family, held):
    for task in sample(family, held):
        assert [m.tool == "answer" for m in task.moves] == [False] * (
            len(task.moves) - 1
        ) + [True]
        assert [m.observation is None for m in task.moves] == [
            m.tool == "answer" for m in task.moves
        ]


@SIDE
@FAMILY
def test_every_tool_that_is_called_is_listed(family, held):
    for task in sample(family, held):
        assert {m.tool for m in task.moves} <= set(task.tools)
        for move in task.moves:
            assert tuple(move.args) == task.tools[move.tool]


@SIDE
@FAMILY
def test_slots_fit_their_token_limits_and_transcripts_the_context(family, held):
    encode = tokenizer().encode
    for task in sample(family, held):
        for move in task.moves:
            call = protocol.call_text(move.tool, dict(move.args))
            assert len(encode(call)) <= protocol.MAX_CALL, call
            assert len(encode(move.thought)) <= protocol.MAX_THOUGHT, move.thought
            assert len(move.observation or "") <= protocol.OBSERVATION_LIMIT
        ids = protocol.encode_pieces(tokenizer(), task_pieces(task))
        assert len(ids) + 2 <= 512  # bos and eos


@SIDE
@FAMILY
def test_a_question_reaches_the_prompt_as_it_is(family, held):
    for task in sample(family, held):
        assert protocol.clean_task(task.question) == task.question


@FAMILY
def test_no_question_is_on_both_sides(family):
    everywhere = {q for name in FAMILIES for q in questions(name, held=False)}
    assert not everywhere & questions(family, held=True)


@SIDE
@pytest.mark.parametrize("family", ["read", "read_calc", "list"])
def test_file_names_are_of_one_side(family, held):
    for task in sample(family, held):
        for path in task.files:
            assert held_out(path.rpartition(".")[0]) == held, path


def operands(task: Task) -> tuple[int, int]:
    calls = [m.args["expression"] for m in task.moves if m.tool == "calc"]
    a, b = re.findall(r"\d+", calls[0])[:2]
    return int(a), int(b)


@SIDE
@pytest.mark.parametrize("family", ["calc", "read_calc"])
def test_pairs_of_numbers_are_of_one_side(family, held):
    for task in sample(family, held):
        a, b = operands(task)
        assert held_out((a, b)) == held or (not held and b == 1), (a, b)


def test_no_pair_of_numbers_is_calculated_with_on_both_sides():
    train, held = (
        {operands(t) for f in ("calc", "read_calc") for t in sample(f, side)}
        for side in (False, True)
    )
    assert not train & held


@SIDE
def test_names_of_made_up_tools_are_of_one_side(held):
    made_up = {
        t
        for task in sample("lookup", held)
        for t in task.tools
        if t not in tasks.SIGNATURES
    }
    assert len(made_up) > 50
    assert all(held_out(name) == held for name in made_up)


# Where no number or name tells the sides apart, the phrasing must.
@pytest.mark.parametrize(
    "cores",
    [
        phrases.READ,
        phrases.SAY,
        phrases.LIST,
        phrases.FIRST,
        phrases.KEEP,
        phrases.UNKNOWN,
    ]
    + [phrases.NEW_TOOL, *phrases.COMBINE.values(), *phrases.ORDERS.values()]
    + list(phrases.LOOKUPS.values()),
)
def test_phrasings_of_the_two_sides_differ(cores):
    train, held = (
        tasks.phrasings(phrases.OPENINGS, cores, side) for side in (False, True)
    )
    assert train
    assert held
    assert not set(train) & set(held)
    # A word that training never spelled so ("Multiply") would be another test.
    spelled = {word for phrasing in train for word in phrasing.split()}
    assert {word for phrasing in held for word in phrasing.split()} <= spelled


@pytest.mark.parametrize("op", phrases.SYMBOLS)
def test_both_sides_have_frames_for_every_operation(op):
    frames = [f.format(e=s) for f in phrases.FRAMES for s in phrases.SYMBOLS[op]]
    assert 0 < sum(map(held_out, frames)) < len(frames)


def test_what_no_tool_serves_is_answered_so_and_has_no_tool():
    for held in (False, True):
        for task in sample("no_tool", held):
            assert task.answer == NO_TOOL
            assert len(task.moves) == 1


def test_a_file_that_cannot_be_read_is_met_in_training_alone():
    failed = [
        [t.answer == FAILED for t in sample("read", side)] for side in (False, True)
    ]
    assert any(failed[0])
    assert not any(failed[1])


@FAMILY
def test_tool_lists_vary_in_members_and_order(family):
    lists = [tuple(task.tools) for task in sample(family, held=False)]
    assert len(set(lists)) > 50
    assert len({frozenset(names) for names in lists}) < len(set(lists))


@FAMILY
def test_the_same_seed_makes_the_same_tasks(family):
    again = random.Random(f"{family} True")
    assert [make(family, again, True) for _ in range(20)] == sample(family, True)[:20]
