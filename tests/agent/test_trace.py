"""The record of a run: as text, as a dict, as JSON lines."""

from __future__ import annotations

import json

from tests.scripted_lm import ScriptedLM, call
from tinyllm.agent import tools
from tinyllm.agent.backend import Slot
from tinyllm.agent.loop import Agent
from tinyllm.agent.tools import Registry
from tinyllm.agent.trace import Account, Step, Trace

ADD = call("calc", expression="4871*209")
DONE = call("answer", text="1018039")
TWO = Registry([tools.calc, tools.answer])


def free(*lines, **options):
    """Return the trace of a free run; each line ends with a line break."""
    lm = ScriptedLM(*[f"{line}\n" for line in lines])
    return Agent(lm, TWO, constrain=False, **options).run("t")


def test_a_trace_reads_as_the_transcript_with_counts():
    lm = ScriptedLM("hm\n", ADD, "ok\n", DONE)
    trace = Agent(lm, TWO).run("x")
    one, two = trace.steps
    assert str(trace).splitlines() == [
        "THOUGHT: hm",
        f"CALL: {ADD}",
        f"      [{one.tokens} tokens, legal min {one.legal_min}, "
        f"forwarded {one.forwarded}, reused {one.reused}]",
        'OBSERVATION: "1018039"',
        "THOUGHT: ok",
        f"CALL: {DONE}",
        f"      [{two.tokens} tokens, legal min {two.legal_min}, "
        f"forwarded {two.forwarded}, reused {two.reused}]",
    ]
    assert one.tokens == 2 + len(ADD)


def test_a_trace_that_stopped_says_why_and_stays_one_line_a_piece():
    trace = free("a\r\x1b[2J", "no\u2028no", max_steps=1)
    lines = str(trace).splitlines()
    assert lines[0] == "THOUGHT: a [2J"
    assert lines[1] == "CALL: no no"
    assert "unconstrained" in lines[2]
    assert lines[3].startswith('OBSERVATION: "error: ')
    assert lines[4:] == ["STOPPED: max_steps"]


def test_a_trace_is_plain_json():
    trace = free("hm", ADD, "hm", "no", max_steps=2)
    plain = json.loads(json.dumps(trace.to_json()))
    assert plain["reason"] == "max_steps"
    assert plain["steps"][0]["args"] == {"expression": "4871*209"}
    assert plain["steps"][1]["tool"] is None
    assert plain["steps"][0]["legal_min"] is None


def test_json_lines_are_a_line_a_step_and_one_for_the_end():
    trace = free("h\u2028m", ADD, "hm", call("answer", text="a\u2028b"))
    lines = trace.json_lines().splitlines()
    first, second, end = map(json.loads, lines)
    assert (first["step"], second["step"]) == (1, 2)
    assert first["args"] == {"expression": "4871*209"}
    assert second["answer"] == end["answer"] == "a\u2028b"
    assert list(end) == ["task", "answer", "reason", "account"]
    assert (end["task"], end["reason"]) == ("t", "answered")


def test_a_step_says_how_many_replies_it_took():
    lm = ScriptedLM("hm\n", "no\n", DONE + "\n")
    trace = Agent(lm, TWO, constrain=False, attempts=3).run("x")
    assert trace.steps[0].attempts == 2
    assert ", 2 attempts]" in str(trace)
    assert trace.steps[0].to_json()["attempts"] == 2


def test_the_json_of_a_step_says_whether_its_call_was_constrained():
    masked = Agent(ScriptedLM("hm\n", DONE), TWO).run("x")
    assert masked.to_json()["steps"][0]["constrained"] is True
    assert free("hm", DONE).to_json()["steps"][0]["constrained"] is False
    by_server = Step((Slot((), "hm"), Slot((), DONE, constrained=True)), None, None)
    assert json.loads(by_server.json_line(1))["constrained"] is True


def test_the_account_tells_thoughts_from_calls_and_calls_from_parsed_ones():
    trace = free("hm", ADD, "well", "no", "ok", DONE)
    account = trace.account
    assert (account.calls, account.parsed) == (3, 2)
    assert account.thought_tokens == len("hm") + len("well") + len("ok")
    assert account.call_tokens == len(ADD) + len("no") + len(DONE)
    plain = trace.to_json()["account"]
    assert plain == json.loads(trace.json_end())["account"]
    assert plain == {
        "calls": 3,
        "parsed": 2,
        "thought_tokens": account.thought_tokens,
        "call_tokens": account.call_tokens,
    }
    assert str(account).startswith("[in all: 2 of 3 calls parsed, 8 tokens of thoughts")


def test_the_account_of_a_run_without_a_step_is_nought_and_of_a_server_unknown():
    assert Trace("x", None, (), "context_full", ()).account == Account(0, 0, 0, 0)
    one, two = Slot((), "hm", tokens=3), Slot((), DONE, tokens=None)
    step = Step((one, two), "answer", {"text": "5"}, answer="5")
    account = Trace("x", "5", (step, step), "answered", ()).account
    assert account == Account(2, 2, 6, None)
    assert "6 tokens of thoughts, ? of calls" in str(account)


def test_the_json_of_a_step_has_the_retained_probability_mass():
    lm = ScriptedLM("hm\n", DONE)
    step = Agent(lm, TWO).run("x").steps[0]
    assert step.to_json()["mass_kept"] == round(step.mass_kept, 4)
    trace = free("hm", DONE)
    assert trace.steps[0].to_json()["mass_kept"] is None


def test_counts_a_server_does_not_give_are_not_known():
    one, two = Slot((), "hm", tokens=3), Slot((), DONE, tokens=None, constrained=True)
    step = Step((one, two), "answer", {"text": "5"}, answer="5")
    assert (step.tokens, step.forwarded) == (None, 0)
    assert "[? tokens, constrained by the server, forwarded 0" in str(step)


def test_a_step_adds_up_both_of_its_slots():
    one = Slot((), "hm", tokens=3, forwarded=5, reused=7)
    two = Slot((), DONE, tokens=20, forwarded=40, reused=60)
    step = Step((one, two), "answer", {"text": "5"}, answer="5")
    assert (step.tokens, step.forwarded, step.reused) == (23, 45, 67)
