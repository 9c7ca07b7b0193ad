"""`tinyllm ablate`: the same held-out tasks with and without a grammar, counted."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyllm.atomic_file import atomic_file, writable
from tinyllm.cli.options import positive, whole
from tinyllm.errors import InferenceError, UsageError
from tinyllm.progress import Progress

if TYPE_CHECKING:
    from tinyllm.engine import Engine
    from tinyllm.evaluate.ablation import Arm, Condition, Outcome
    from tinyllm.evaluate.outcome_file import OutcomeFile
    from tinyllm.evaluate.table import Row

DRAWN_WITH = ("matplotlib", "IPython", "ipywidgets")
REPORT, TABLE, PICTURE = "ablation.json", "ablation.txt", "ablation.png"


def ablate_options(option: Any) -> None:
    """Declare the options of `tinyllm ablate`."""
    option("--tasks", type=positive, default=5, help="tasks a family (5)")
    about = "trained, story-only, unseen-tools, temperature-1 (these), early, smollm2"
    option("--condition", action="append", help=f"may be repeated: {about}")
    option("--arm", action="append", help="free, instructed, retry or mask (all)")
    option("--family", action="append", help="only this one; may be repeated")
    option("--early", metavar="FOLDER", help="the checkpoint of condition early")
    option("--out", metavar="FOLDER", help="keep all outcomes, and resume there")
    option("--seed", type=whole, default=0, help="chooses tasks and random numbers (0)")
    option("--json", action="store_true", help="print JSON for programs")


def run_ablate(args: argparse.Namespace) -> int:
    """Compare four ways of producing a tool call on the same held-out tasks."""
    from tinyllm.evaluate.table import costs, families, pairs, table

    out = writable(args.out) if args.out else None
    try:
        rows = _measured(args, out)
    except KeyboardInterrupt:
        if out is not None:
            print(f"{out} is kept: the same command resumes there", file=sys.stderr)
        raise
    parts = [table(rows), pairs(rows), "solved, by family", families(rows), costs(rows)]
    text = "\n\n".join(filter(None, parts))
    plain = json.dumps([row.to_json() for row in rows], indent=1)
    if out is not None:
        _write(out / REPORT, (plain + "\n").encode())
        _write(out / TABLE, (text + "\n").encode())
        _draw(rows, out / PICTURE)
    print(plain if args.json else text)
    return 0


def _measured(args: argparse.Namespace, out: Path | None) -> list[Row]:
    """Return a row for each arm under each condition given, in their order."""
    import tinyllm
    from tinyllm.evaluate.ablation import ARMS, USUAL
    from tinyllm.evaluate.table import row
    from tinyllm.train.tasks import FAMILIES

    arms = [ARMS[name] for name in dict.fromkeys(args.arm or ARMS)]
    families = list(dict.fromkeys(args.family or FAMILIES))
    for name in families:
        FAMILIES[name]  # a UsageError where there is none
    usual = [*USUAL, "early"] if args.early else list(USUAL)
    conditions = _conditions(args.condition or usual, args.early)
    # opened first: a file of another measurement is refused before hours of work
    kept = {c: [_kept(c, arm, args.seed, out) for arm in arms] for c in conditions}
    rows = []
    for condition, files in kept.items():
        lm = tinyllm.load(condition.model)
        found = {
            arm.name: _counted(lm, condition, arm, families, args, file)
            for arm, file in zip(arms, files, strict=True)
        }
        for arm in found:
            free = () if arm == "free" else found.get("free", ())
            rows.append(row(condition.name, arm, found[arm], free))
    return rows


def _kept(condition: Condition, arm: Arm, seed: int, out: Path | None) -> OutcomeFile:
    """Return the outcomes so far, with their file if there is a folder."""
    from tinyllm.evaluate.outcome_file import OutcomeFile, about

    path = out and out / f"{condition.name}-{arm.name}.jsonl"
    return OutcomeFile(path, about(condition, arm, seed))


def _conditions(names: Sequence[str], early: str | None) -> list[Condition]:
    """Return the conditions of these names; an error unless all models exist."""
    from tinyllm.evaluate.ablation import CONDITIONS
    from tinyllm.models.find import find

    made = []
    for condition in [CONDITIONS[name] for name in dict.fromkeys(names)]:
        if not condition.model and early is None:
            raise UsageError(
                "condition early needs a checkpoint: make one with `tinyllm train "
                "agent --steps 300 --out early` (10 minutes) and add --early early"
            )
        made.append(replace(condition, model=condition.model or early or ""))
        find(made[-1].model)
    return made


def _counted(
    lm: Engine,
    condition: Condition,
    arm: Arm,
    families: Sequence[str],
    args: argparse.Namespace,
    kept: OutcomeFile,
) -> list[Outcome]:
    """Return the outcomes of one arm under one condition; measure what is lacking."""
    from tinyllm.evaluate.ablation import outcomes

    before = len(kept.outcomes)
    total = sum(max(args.tasks, kept.done(family)) for family in families)
    with Progress(total, f"{condition.name}, {arm.name}", "tasks") as progress:
        done = sum(kept.done(family) for family in families)
        progress.update(done)
        for family in families:
            first = kept.done(family)
            for outcome in outcomes(
                lm, condition, arm, family, args.tasks, args.seed, first
            ):
                kept.add(outcome)
                done += 1
                progress.update(done)
    _check_cold(condition, arm, kept.outcomes[before:], args.seed)
    n = min(kept.done(family) for family in families)
    if n > args.tasks:
        print(f"{n} tasks a family are there already: all count", file=sys.stderr)
    return [o for o in kept.outcomes if o.family in families and o.number < n]


def _check_cold(
    condition: Condition, arm: Arm, new: Sequence[Outcome], seed: int
) -> None:
    """Run a sample of the tasks again, cold; InferenceError if an outcome differs."""
    import tinyllm
    from tinyllm.evaluate.ablation import differing, sample

    if not (again := sample(new, seed)):
        return
    for bad in differing(tinyllm.load(condition.model), condition, arm, again, seed):
        raise InferenceError(
            f"{condition.name}, {arm.name}: task {bad.number} of {bad.family} has "
            "another outcome in a cold run, so this table cannot be trusted: "
            f"try `tinyllm verify cache --model {condition.model}`"
        )


def _draw(rows: Sequence[Row], path: Path) -> None:
    """Write the picture, if the packages that draw it are installed."""
    missing = [name for name in DRAWN_WITH if find_spec(name) is None]
    if missing:
        print(f"no {path.name}: it needs {', '.join(missing)}", file=sys.stderr)
        return
    from tinyllm.widgets import ablation, picture

    _write(path, picture.png(ablation.draw(rows)))


def _write(path: Path, data: bytes) -> None:
    """Write a file, all of it or nothing."""
    with atomic_file(path) as file:
        file.write(data)
