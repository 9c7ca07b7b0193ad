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

from tinyllm.cli.options import positive, whole
from tinyllm.errors import UsageError
from tinyllm.progress import Progress

if TYPE_CHECKING:
    from tinyllm.evaluate.ablation import Arm, Condition
    from tinyllm.evaluate.outcome_file import OutcomeFile
    from tinyllm.evaluate.table import Row
    from tinyllm.numpy_engine import NumpyEngine

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
    option("--out", metavar="FOLDER", help="keep all outcomes there, and go on there")
    option("--seed", type=whole, default=0, help="chooses the tasks and the dice (0)")
    option("--json", action="store_true", help="print JSON for programs")


def run_ablate(args: argparse.Namespace) -> int:
    """Measure what a grammar gives: four ways to a call, on held-out tasks."""
    from tinyllm.atomic_file import writable
    from tinyllm.evaluate.table import costs, families, table

    out = writable(args.out) if args.out else None
    try:
        rows = _measured(args, out)
    except KeyboardInterrupt:
        if out is not None:
            print(
                f"{out} is kept: the same command goes on from there", file=sys.stderr
            )
        raise
    text = "\n\n".join([table(rows), "solved, by family", families(rows), costs(rows)])
    plain = json.dumps([row.to_json() for row in rows], indent=1)
    if out is not None:
        (out / REPORT).write_text(plain + "\n", encoding="utf-8")
        (out / TABLE).write_text(text + "\n", encoding="utf-8")
        _draw(rows, out / PICTURE)
    print(plain if args.json else text)
    return 0


def _measured(args: argparse.Namespace, out: Path | None) -> list[Row]:
    """A row for each arm under each condition that was asked for, in their order."""
    import tinyllm
    from tinyllm.evaluate.ablation import ARMS, USUAL, chosen
    from tinyllm.train.tasks import FAMILIES

    arms = chosen("arm", ARMS, args.arm or list(ARMS))
    families = chosen("family", {f: f for f in FAMILIES}, args.family or list(FAMILIES))
    usual = [*USUAL, "early"] if args.early else list(USUAL)
    conditions = _conditions(args.condition or usual, args.early)
    # opened first: a file of another measurement is refused before hours of work
    kept = {c: [_kept(c, arm, args.seed, out) for arm in arms] for c in conditions}
    rows = []
    for condition, files in kept.items():
        lm = tinyllm.load(condition.model)
        for arm, file in zip(arms, files, strict=True):
            rows.append(_row(lm, condition, arm, families, args, file))
    return rows


def _kept(condition: Condition, arm: Arm, seed: int, out: Path | None) -> OutcomeFile:
    """The outcomes that are there already, with their file if there is a folder."""
    from tinyllm.evaluate.outcome_file import OutcomeFile, about

    path = out and out / f"{condition.name}-{arm.name}.jsonl"
    return OutcomeFile(path, about(condition, arm, seed))


def _conditions(names: Sequence[str], early: str | None) -> list[Condition]:
    """The conditions of these names, whose models are all there."""
    from tinyllm.evaluate.ablation import CONDITIONS, chosen
    from tinyllm.models.find import find

    found = chosen("condition", CONDITIONS, list(names))
    if early is None and any(not condition.model for condition in found):
        raise UsageError(
            "condition early needs a checkpoint: make one with `tinyllm train agent "
            "--steps 300 --out early` (10 minutes) and add --early early"
        )
    made = [c if c.model else replace(c, model=early) for c in found]
    for condition in made:
        find(condition.model)
    return made


def _row(
    lm: NumpyEngine,
    condition: Condition,
    arm: Arm,
    families: Sequence[str],
    args: argparse.Namespace,
    kept: OutcomeFile,
) -> Row:
    """One arm under one condition: what is not kept already is measured."""
    from tinyllm.evaluate.ablation import outcomes
    from tinyllm.evaluate.table import row

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
    n = min(kept.done(family) for family in families)
    if n > args.tasks:
        print(f"{n} tasks a family are there, all of them count", file=sys.stderr)
    counted = [o for o in kept.outcomes if o.family in families and o.number < n]
    return row(condition.name, arm.name, counted)


def _draw(rows: Sequence[Row], path: Path) -> None:
    """Write the picture, where there is what widgets need to draw it."""
    missing = [name for name in DRAWN_WITH if find_spec(name) is None]
    if missing:
        print(f"no {path.name}: it needs {', '.join(missing)}", file=sys.stderr)
        return
    from tinyllm.widgets import ablation, picture

    path.write_bytes(picture.png(ablation.draw(rows)))
