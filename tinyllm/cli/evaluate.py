"""`tinyllm evaluate`: solve held-out tasks and count, family by family."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from tinyllm.cli.options import positive, sampling_options, whole


def evaluate_options(option: Any) -> None:
    """Declare the options of `tinyllm evaluate`."""
    option("--tasks", type=positive, default=50, help="tasks a family (50)")
    option("--family", action="append", help="only this one; may be repeated")
    option("--show-failures", type=whole, default=0, help="print so many a family (0)")
    option("--no-grammar", action="store_true", help="let the model write calls freely")
    sampling_options(option)


def run_evaluate(args: argparse.Namespace) -> int:
    """Solve held-out tasks and count, family by family."""
    import tinyllm
    from tinyllm.evaluate.held_out import HEADER, measure
    from tinyllm.progress import Progress
    from tinyllm.train.tasks import FAMILIES

    families = args.family or list(FAMILIES)
    for family in families:
        FAMILIES[family]  # a UsageError where there is none
    lm = tinyllm.load(args.model, False, args.tokenizer, args.context)
    rows = []
    if not args.json:
        print(HEADER)
    for family in families:
        with Progress(args.tasks, family, "tasks") as progress:
            tell = progress.update
            score = measure(lm, family, args.tasks, args.seed, tell, **_arm(args))
        low, high = score.interval
        row = {"family": family, "tasks": score.tasks, "solved": score.solved}
        rows.append(row | {"low": round(low, 4), "high": round(high, 4)})
        if not args.json:
            print(score, flush=True)
        for task, trace in score.failures[: args.show_failures]:
            seen = f"\nTASK: {task.question}\n{trace}\nRIGHT: {task.answer}\n"
            print(seen, file=sys.stderr)
    if args.json:
        print(json.dumps(rows, indent=2))
    return 0


def _arm(args: argparse.Namespace) -> dict[str, Any]:
    return {"constrain": not args.no_grammar, "temperature": args.temperature}
