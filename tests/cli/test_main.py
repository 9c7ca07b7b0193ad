"""The command line: what it prints, and how it ends."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

import tinyllm
from tinyllm.agent.tools import Registry
from tinyllm.cli import main as cli

QUESTION = "What is 4871 * 209?"


def run(capsys, *arguments):
    """(exit code, standard output, standard error) of one command, in this process."""
    code = cli.main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_agent_prints_its_trace_and_the_product(capsys):
    code, out, _ = run(capsys, "agent", QUESTION)
    lines = out.splitlines()
    assert code == 0
    assert lines[-1] == f"ANSWER: {4871 * 209}"
    assert lines[0].startswith("THOUGHT: ")
    assert lines[1] == 'CALL: {"tool":"calc","args":{"expression":"4871 * 209"}}'
    assert "legal min" in lines[2]
    assert "forwarded" in lines[2]
    assert "reused" in lines[2]
    assert lines[3] == 'OBSERVATION: "1018039"'
    assert lines[-2].startswith("      [in all: 2 of 2 calls parsed, ")


def test_json_holds_the_same_run(capsys):
    code, out, _ = run(capsys, "agent", QUESTION, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["answer"] == "1018039"
    assert found["steps"][0]["tool"] == "calc"
    assert found["steps"][0]["legal_min"] >= 1


def test_json_lines_are_a_line_a_step_and_the_end(capsys):
    code, out, _ = run(capsys, "agent", QUESTION, "--json-lines")
    *steps, end = map(json.loads, out.splitlines())
    assert code == 0
    assert [step["step"] for step in steps] == [1, 2]
    account = end.pop("account")
    assert end == {"task": QUESTION, "answer": "1018039", "reason": "answered"}
    assert (account["calls"], account["parsed"]) == (2, 2)
    tokens = account["thought_tokens"] + account["call_tokens"]
    assert tokens == sum(step["tokens"] for step in steps)


def test_all_tools_can_list_the_files(capsys, tmp_path):
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    task = ("agent", "Which files are there?", "--root", str(tmp_path))
    _, out, _ = run(capsys, *task, "--all-tools")
    assert "ANSWER: notes.txt" in out
    _, out, _ = run(capsys, *task)
    assert "list_files" not in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--api-key-env", "TINYLLM_NO_SUCH"), "no variable of that name"),
        (("--no-grammar",), "--no-grammar"),
        (("--max-seconds", "0"), "max_seconds"),
        (("--json", "--json-lines"), "choose one"),
    ],
)
def test_options_that_do_not_suit_a_server_are_exit_code_2(
    capsys, arguments, message, monkeypatch
):
    monkeypatch.delenv("TINYLLM_NO_SUCH", raising=False)
    url = "http://127.0.0.1:9/v1"
    code, _, err = run(capsys, "agent", QUESTION, "--server", url, *arguments)
    assert code == 2
    assert message in err


def test_the_root_is_where_files_are_read(capsys, tmp_path):
    (tmp_path / "notes.txt").write_text(
        "Lily hid a blue kite in the garden.\n", encoding="utf-8"
    )
    _, out, _ = run(capsys, "agent", "Read notes.txt.", "--root", str(tmp_path))
    assert "ANSWER: Lily hid a blue kite in the garden." in out


def test_a_task_without_an_answer_is_exit_code_1(capsys):
    code, out, _ = run(capsys, "agent", QUESTION, "--max-steps", "1")
    assert code == 1
    assert "NO ANSWER" in out


@pytest.mark.parametrize("task", ["", "  \n\t "])
def test_an_empty_task_is_a_sentence_and_exit_code_2(capsys, task):
    code, out, err = run(capsys, "agent", task)
    assert (code, out) == (2, "")
    assert "empty" in err
    assert "Traceback" not in err


def test_a_task_longer_than_the_context_names_the_limit(capsys):
    code, _, err = run(capsys, "agent", "add 1 and 2 " * 500)
    assert code == 2
    assert "512" in err


def test_a_model_that_is_not_there_says_what_to_give(capsys, tmp_path):
    code, _, err = run(capsys, "agent", QUESTION, "--model", str(tmp_path / "none"))
    assert code == 1
    assert "agent" in err
    assert "config.json" in err


def test_a_damaged_model_is_a_sentence(capsys, tmp_path):
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"\x08\0\0\0\0\0\0\0{]")
    code, _, err = run(capsys, "generate", "Once", "--model", str(tmp_path))
    assert code == 1
    assert err.startswith("tinyllm: ")
    assert "Traceback" not in err


@pytest.mark.parametrize("seed", [3, 4])
def test_generate_prints_the_prompt_and_the_same_text_for_the_same_seed(capsys, seed):
    options = ["--temperature", "0.9", "--seed", str(seed), "--max-new-tokens", "20"]
    first = run(capsys, "generate", "Once upon a time", *options)
    again = run(capsys, "generate", "Once upon a time", *options)
    assert first == again
    assert first[0] == 0
    assert first[1].startswith("Once upon a time")


def test_generate_as_json_counts_new_tokens(capsys):
    code, out, _ = run(
        capsys, "generate", "Once upon a time", "--max-new-tokens", "7", "--json"
    )
    assert code == 0
    assert len(json.loads(out)["token_ids"]) == 7


def test_evaluate_counts_one_family(capsys):
    code, out, _ = run(capsys, "evaluate", "--tasks", "3", "--family", "calc", "--json")
    (row,) = json.loads(out)
    assert code == 0
    assert row["tasks"] == 3
    assert 0 <= row["low"] <= row["solved"] / 3 <= row["high"] <= 1


def test_a_family_that_is_not_there_names_those_that_are(capsys):
    code, _, err = run(capsys, "evaluate", "--family", "chess")
    assert code == 2
    assert "read_calc" in err


def test_training_into_a_place_that_cannot_be_written_says_so(capsys, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way", encoding="utf-8")
    code, _, err = run(capsys, "train", "agent", "--out", str(blocked / "model"))
    assert code == 2
    assert "cannot be written" in err
    assert blocked.read_text(encoding="utf-8") == "in the way"


@pytest.mark.parametrize("command", ["agent", "generate", "evaluate", "train"])
def test_every_command_has_help_with_its_options(capsys, command):
    with pytest.raises(SystemExit) as end:
        cli.main([command, "--help"])
    assert end.value.code == 0
    assert "--" in capsys.readouterr().out


def test_the_help_shows_commands_that_parse(capsys):
    for line in cli.EXAMPLES.splitlines():
        if line.startswith("  tinyllm "):
            words = line.split()
            assert cli.parser().parse_args(["train", "agent", "--out", "x"]).run
            assert words[1] in cli.__doc__


def test_ctrl_c_while_generating_is_exit_code_130(capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("tinyllm.decode.sampling.Sampler.pick", interrupted)
    code, _, err = run(capsys, "generate", "Once upon a time")
    assert code == 130
    assert "Traceback" not in err


@pytest.mark.skipif(os.name == "nt", reason="signals to a child differ on Windows")
def test_a_real_ctrl_c_ends_training_with_130_and_nothing_half_written(tmp_path):
    command = [sys.executable, "-m", "tinyllm", "train", "agent", "--out"]
    child = subprocess.Popen(
        [*command, str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
        # where the tests run in the background of a script, SIGINT is ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with child:
        assert child.stderr is not None
        child.stderr.readline()  # it has begun
        child.send_signal(signal.SIGINT)
        rest = child.stderr.read()
    assert child.returncode == 130
    assert "Traceback" not in rest
    assert not list(tmp_path.glob("*.safetensors"))


def test_a_closed_pipe_is_no_traceback():
    command = f'{sys.executable} -m tinyllm generate "Once" | head -c 1'
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=True
    )
    assert done.stdout == "O"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["evaluate", "--tasks", "0"],
        ["evaluate", "--tasks", "-1"],
        ["evaluate", "--show-failures", "-1"],
        ["agent", QUESTION, "--max-steps", "0"],
        ["agent", QUESTION, "--seed", "-1"],
        ["generate", "Once", "--max-new-tokens", "-1"],
    ],
)
def test_a_number_that_makes_no_sense_is_exit_code_2(capsys, arguments):
    with pytest.raises(SystemExit) as end:
        cli.main(arguments)
    assert end.value.code == 2
    assert arguments[-2] in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--top-p", "7"], ["--temperature", "nan"]])
def test_nothing_is_printed_before_the_options_are_checked(capsys, arguments):
    code, out, err = run(capsys, "generate", "Once upon a time", *arguments)
    assert code != 0
    assert out == ""
    assert err.startswith("tinyllm: ")


def test_failures_shown_stay_out_of_the_json(capsys):
    options = ["--tasks", "2", "--family", "no_tool", "--model", "stories"]
    _, out, err = run(capsys, "evaluate", *options, "--show-failures", "1", "--json")
    assert json.loads(out)[0]["solved"] == 0
    assert "RIGHT: " in err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_disk_is_a_sentence():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tinyllm", "agent", QUESTION],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode != 0
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_text_that_the_terminal_cannot_show_is_no_traceback():
    done = subprocess.run(
        [sys.executable, "-m", "tinyllm", "generate", "é", "--max-new-tokens", "1"],
        env=dict(os.environ, PYTHONIOENCODING="ascii"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert done.stdout.startswith("?")


def test_the_registry_of_the_command_line_is_the_default_one(monkeypatch, capsys):
    seen = []
    real = Registry.describe
    monkeypatch.setattr(
        Registry, "describe", lambda self: seen.append(real(self)) or real(self)
    )
    run(capsys, "agent", QUESTION)
    assert set(seen) == {"calc(expression) read_file(path) answer(text)"}


def test_steps_are_printed_although_the_run_is_interrupted(capsys, monkeypatch):
    real, asked = Registry.run, []

    def second_time(self, name, args):
        asked.append(name)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return real(self, name, args)

    monkeypatch.setattr(Registry, "run", second_time)
    code, out, _ = run(capsys, "agent", QUESTION)
    assert code == 130
    assert out.splitlines()[-1] == 'OBSERVATION: "1018039"'


@pytest.mark.parametrize("form", ["--json", "--json-lines"])
def test_json_is_whole_where_the_terminal_cannot_show_it(tmp_path, form):
    text = "Anna wrote 🦙 and é."
    (tmp_path / "notes.txt").write_text(text, encoding="utf-8")
    task = ["agent", "Read notes.txt.", "--root", str(tmp_path), form]
    found = {}
    for encoding in ("ascii", "utf-8"):
        done = subprocess.run(
            [sys.executable, "-m", "tinyllm", *task],
            env=os.environ | {"PYTHONIOENCODING": encoding},
            capture_output=True,
        )
        found[encoding] = done.stdout.decode(encoding)
    if form == "--json":
        plain, ascii_ = (json.loads(found[e]) for e in ("utf-8", "ascii"))
        assert plain["steps"][0]["observation"] == text
    else:
        plain, ascii_ = (
            [json.loads(line) for line in found[e].split("\n") if line]
            for e in ("utf-8", "ascii")
        )
        assert plain[0]["observation"] == text
    assert ascii_ == plain
    assert "🦙" in found["utf-8"]


def test_an_empty_answer_is_an_answer(capsys, monkeypatch):
    monkeypatch.setattr(
        Registry, "run", lambda self, name, args: "" if name == "answer" else "1"
    )
    code, out, _ = run(capsys, "agent", QUESTION)
    assert code == 0
    assert out.splitlines()[-1] == "ANSWER: "


def piped(text, *arguments):
    """(exit code, standard output, standard error) of a command that reads a pipe."""
    done = subprocess.run(
        [sys.executable, "-m", "tinyllm", *arguments],
        input=text.encode(), capture_output=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize("dash", [[], ["-"]])
def test_generate_continues_what_comes_through_a_pipe(dash, capsys):
    arguments = ["--max-new-tokens", "8"]
    code, out, err = piped("Once upon a time\n", "generate", *dash, *arguments)
    assert (code, err) == (0, "")
    given = run(capsys, "generate", "Once upon a time", *arguments)[1]
    assert out == given.replace("\n", os.linesep)


def test_the_agent_solves_the_task_that_comes_through_a_pipe():
    code, out, _ = piped(f"{QUESTION}\n", "agent", "-", "--fast")
    assert code == 0
    assert out.splitlines()[-1] == "ANSWER: 1018039"


def test_without_a_text_on_a_terminal_it_says_what_to_give(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    code, out, err = run(capsys, "generate")
    assert (code, out) == (2, "")
    assert "give the prompt, or send it by a pipe" in err


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_a_pipe_that_is_not_text_is_a_sentence(capsys, monkeypatch, errors):
    """A locale decides which of the two errors standard input has."""
    pipe = io.TextIOWrapper(io.BytesIO(b"caf\xe9"), "utf-8", errors)
    monkeypatch.setattr("sys.stdin", pipe)
    code, out, err = run(capsys, "generate")
    assert (code, out) == (2, "")
    assert "the prompt on standard input is not utf-8" in err


def test_a_shorter_context_ends_the_text_and_a_longer_one_is_refused(capsys):
    arguments = ("generate", "Once upon a time", "--max-new-tokens", "99", "--json")
    code, out, _ = run(capsys, *arguments, "--context", "20")
    assert code == 0
    assert json.loads(out)["stop_reason"] == "context"
    code, _, err = run(capsys, *arguments, "--context", "9999")
    assert code == 2
    assert "512" in err


def test_fast_mode_is_asked_for_by_a_flag(capsys, monkeypatch):
    seen, real = [], tinyllm.load

    def load(*given):
        seen.append(given)
        return real(*given)

    monkeypatch.setattr("tinyllm.load", load)
    run(capsys, "generate", "a", "--fast", "--max-new-tokens", "1")
    run(capsys, "generate", "a", "--max-new-tokens", "1")
    assert [exact for _, exact, *_ in seen] == [False, True]
