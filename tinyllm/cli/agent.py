"""`tinyllm agent`: one task, solved by a model here or by one that a server runs."""

from __future__ import annotations

import argparse
import json
import os
from itertools import count
from typing import TYPE_CHECKING, Any

from tinyllm.cli.options import (
    load_model,
    positive,
    read_text,
    sampling_options,
    shown_json,
)
from tinyllm.errors import UsageError

if TYPE_CHECKING:
    from tinyllm.agent.trace import Step


def agent_options(option: Any) -> None:
    """Declare the options of `tinyllm agent`."""
    about = "what to do, one line (-: standard input, as when it is left out)"
    option("task", nargs="?", default="-", help=about)
    option("--root", default=".", help="the folder that read_file may read (.)")
    option("--max-steps", type=positive, default=8, help="give up after so many (8)")
    about = "give up after so many seconds (600)"
    option("--max-seconds", type=float, default=600.0, help=about)
    option("--all-tools", action="store_true", help="list_files and remember as well")
    option("--no-grammar", action="store_true", help="let the model write calls freely")
    option("--server", metavar="URL", help="ask --model of an OpenAI-compatible server")
    option("--api-key-env", metavar="NAME", help="the variable that holds its key")
    about = "print a line of JSON a step, and one for the end"
    option("--json-lines", action="store_true", help=about)
    sampling_options(option)


def run_agent(args: argparse.Namespace) -> int:
    """Solve one task and show how: thoughts, calls, observations and their cost."""
    import tinyllm
    from tinyllm.agent import tools
    from tinyllm.agent.protocol import clean_task

    if args.json and args.json_lines:
        raise UsageError("--json and --json-lines are two forms: choose one")
    task = read_text(args.task, "task")
    clean_task(task)  # before a model is loaded for an empty task
    registry = (tools.every if args.all_tools else tools.default)(args.root)
    backend, options = _backend(args)
    agent = tinyllm.Agent(
        backend, registry, args.max_steps, max_seconds=args.max_seconds, **options
    )
    number = count(1)

    def show(step: Step) -> None:
        """Print a step at once: with a large model the next one takes a while."""
        if args.json_lines:
            print(shown_json(step.json_line(next(number)).rstrip()), flush=True)
        elif not args.json:
            print(step, flush=True)

    trace = agent.run(task, on_step=show)
    answer = "NO ANSWER" if trace.answer is None else f"ANSWER: {trace.answer}"
    if args.json:
        plain = json.dumps(trace.to_json(), ensure_ascii=False, indent=2)
        print(shown_json(plain))
    elif args.json_lines:
        print(shown_json(trace.json_end().rstrip()))
    else:
        account = f"      {trace.account}"
        print("\n".join(filter(None, [account, trace.end(), answer])))
    return 0 if trace.answer is not None else 1


def _backend(args: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """Return the model, or the server's backend, with the options for Agent."""
    sampling = {"temperature": args.temperature, "seed": args.seed}
    if args.server is None:
        if args.api_key_env:
            raise UsageError("--api-key-env is for a server: add --server URL")
        return load_model(args), sampling | {"constrain": not args.no_grammar}
    from tinyllm.server.backend import HttpBackend

    key = os.environ.get(args.api_key_env) if args.api_key_env else None
    if args.api_key_env and not key:
        raise UsageError(f"--api-key-env: the variable {args.api_key_env} is not set")
    if args.no_grammar:
        raise UsageError("--no-grammar is for models here: a server has its own")
    return HttpBackend(args.server, args.model, api_key=key, **sampling), {}
