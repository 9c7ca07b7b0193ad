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
from tinyllm.errors import ServerError, UsageError

if TYPE_CHECKING:
    from tinyllm.agent.trace import Step, Trace


def agent_options(option: Any) -> None:
    """Declare the options of `tinyllm agent`."""
    about = "what to do, one line (-: standard input, as when it is left out)"
    option("task", nargs="?", default="-", help=about)
    option("--root", default=".", help="the folder that read_file may read (.)")
    option("--max-steps", type=positive, default=8, help="give up after so many (8)")
    about = "give up after so many seconds (600)"
    option("--max-seconds", type=float, default=600.0, help=about)
    option("--max-thought", type=positive, default=24, help="tokens of a thought (24)")
    option("--max-call", type=positive, default=96, help="tokens of a call (96)")
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

    try:
        trace = agent.run(task, on_step=show)
    except ServerError as error:
        _print_end(args, error.trace)
        raise
    _print_end(args, trace)
    return 0 if trace.answer is not None else 1


def _print_end(args: argparse.Namespace, trace: Trace) -> None:
    """Print what is not printed yet of a run that is over, or that broke off."""
    if args.json:
        plain = json.dumps(trace.to_json(), ensure_ascii=False, indent=2)
        print(shown_json(plain))
    elif args.json_lines:
        print(shown_json(trace.json_end().rstrip()))
    else:
        answer = "NO ANSWER" if trace.answer is None else f"ANSWER: {trace.answer}"
        account = f"      {trace.account}"
        print("\n".join(filter(None, [account, trace.end(), answer])), flush=True)


def _backend(args: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """Return the model, or the server's backend, with the options for Agent."""
    shared = {"temperature": args.temperature, "seed": args.seed}
    shared |= {"max_thought": args.max_thought, "max_call": args.max_call}
    if args.server is None:
        if args.api_key_env:
            raise UsageError("--api-key-env is for a server: add --server URL")
        return load_model(args), shared | {"constrain": not args.no_grammar}
    from tinyllm.server.backend import HttpBackend

    key = os.environ.get(args.api_key_env) if args.api_key_env else None
    if args.api_key_env and not key:
        # what was given is not shown: it may be the key itself
        raise UsageError(
            "--api-key-env: no variable of that name is set: give the name of the "
            "variable that holds the key, such as OPENAI_API_KEY"
        )
    if args.no_grammar:
        raise UsageError("--no-grammar is for models here: a server has its own")
    return HttpBackend(args.server, args.model, api_key=key, **shared), {}
