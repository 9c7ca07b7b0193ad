"""`tinyllm agent --server`: what is sent, what is printed, and what never is."""

from __future__ import annotations

import json

import pytest

from tests.scripted_lm import call
from tests.scripted_server import ScriptedServer, refusal, says
from tinyllm.agent.protocol import MAX_CALL, MAX_THOUGHT
from tinyllm.cli import main as cli

pytest.importorskip("openai", reason="the extra `http` is not installed")

ADD = call("calc", expression="4871*209")
DONE = call("answer", text="1018039")
QUESTION = "What is 4871 * 209?"
KEY = "sk-Zq7LmN2pXw9RtY4u"


def run(capsys, *arguments, script=()):
    """(exit code, standard output, standard error) and the server of one command."""
    with ScriptedServer(*script) as server:
        url = ("--server", server.url, "--model", "m")
        code = cli.main(["agent", QUESTION, *url, *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err, server


def test_a_server_answers_and_gets_the_limits_of_tokens(capsys):
    script = says("hm"), says(ADD), says("so"), says(DONE)
    limits = ("--max-thought", "30", "--max-call", "200")
    code, out, _, server = run(capsys, *limits, script=script)
    assert (code, out.splitlines()[-1]) == (0, "ANSWER: 1018039")
    assert [body["max_tokens"] for body in server.sent] == [30, 200] * 2
    *_, server = run(capsys, script=script)
    assert [body["max_tokens"] for body in server.sent] == [MAX_THOUGHT, MAX_CALL] * 2


def ends(line):
    """The number of a line of JSON, or "end"."""
    return json.loads(line).get("step", "end")


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ((), lambda out: out.count("CALL: ") == 1 and "STOPPED: server_error" in out),
        (("--json",), lambda out: len(json.loads(out)["steps"]) == 1),
        (("--json-lines",), lambda out: [*map(ends, out.splitlines())] == [1, "end"]),
    ],
)
def test_what_was_done_before_an_error_of_the_server_is_printed(capsys, form, shown):
    script = says("hm"), says(ADD), refusal("x", 404)
    code, out, err, _ = run(capsys, *form, script=script)
    assert code == 1
    assert shown(out), out
    assert "says 404" in err


@pytest.mark.parametrize("option", ["--max-thought", "--max-call"])
@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many"])
def test_a_limit_of_tokens_that_is_not_a_whole_number_from_1_is_refused(
    capsys, option, value
):
    with pytest.raises(SystemExit) as caught:
        run(capsys, option, value)
    assert caught.value.code == 2
    assert option in capsys.readouterr().err


def test_the_limits_hold_for_a_model_here_too(capsys):
    code = cli.main(["agent", QUESTION, "--max-thought", "1", "--json"])
    first = json.loads(capsys.readouterr().out)["steps"][0]
    assert code in (0, 1)
    assert len(first["thought"]) < len("I need the product.")
    assert cli.main(["agent", QUESTION, "--max-call", "2"]) == 2
    assert "max_call is 2 tokens" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--api-key-env", KEY),
        ("--api-key", KEY),  # argparse takes it for the beginning of --api-key-env
        ("--server", f"http://127.0.0.1:9/v1?key={KEY}"),
        ("--server", f"http://{KEY}@127.0.0.1:9/v1"),
        ("--server", KEY),
    ],
)
def test_a_key_in_the_wrong_place_is_not_printed(capsys, arguments):
    code, out, err, _ = run(capsys, *arguments)
    assert code == 2
    assert KEY not in out + err
    assert "such as" in err
