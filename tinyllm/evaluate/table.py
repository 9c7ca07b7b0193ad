"""Outcomes counted: a `Row` for each condition and arm, as a table and as JSON.

`row(condition, arm, outcomes, free)` counts; `table(rows)`, `pairs(rows)`,
`families(rows)` and `costs(rows)` return text to print; `Row.to_json` and `from_json`
go through a file. Percentages follow the rule of `evaluate.statistics`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any

from tinyllm.evaluate.ablation import Outcome
from tinyllm.evaluate.statistics import chance, percent, sign_test, spread, wilson

# metric -> heading in the table; the first two measure syntax
METRICS = {
    "parsed": "parsed",
    "valid": "valid",
    "right_tool": "right tool",
    "right_args": "right args",
    "solved": "solved",
}
SYNTAX = ("parsed", "valid")
PAIRED = ("valid", "solved")  # one of syntax, one of sense: compared task by task
CAPTION = "in pairs with free: tasks that pass in this arm only, or in free only"


@dataclass(frozen=True)
class Row:
    """How many of `tasks` passed each of METRICS, and what a task cost on average.

    `by_family` has the share of each family's tasks that were solved. Of the
    `paired_tasks`, those that the free arm had too, `paired` has for each of PAIRED how
    many passed in this arm only, and how many in the free arm only.
    """

    condition: str
    arm: str
    tasks: int
    counts: dict[str, int]
    tokens: float
    forwarded: float
    mass_kept: float | None
    by_family: dict[str, float] = field(default_factory=dict)
    paired_tasks: int = 0
    paired: dict[str, list[int]] = field(default_factory=dict)

    def share(self, metric: str) -> float:
        """Return the share of tasks, 0 to 1."""
        return self.counts[metric] / self.tasks

    def interval(self, metric: str) -> tuple[float, float]:
        """Return the 95 % interval of the share. Source: Wilson 1927."""
        return wilson(self.counts[metric], self.tasks)

    def to_json(self) -> dict[str, Any]:
        """Return the row as a plain dict, with intervals and the p of each pair."""
        intervals = {m: [round(x, 4) for x in self.interval(m)] for m in METRICS}
        p = {m: float(f"{sign_test(*n):.4g}") for m, n in self.paired.items()}
        return asdict(self) | {"intervals": intervals, "p": p}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Row:
        """Return the row that `to_json` wrote."""
        return cls(**{k: v for k, v in plain.items() if k not in ("intervals", "p")})


def row(
    condition: str,
    arm: str,
    outcomes: Sequence[Outcome],
    free: Sequence[Outcome] = (),
) -> Row:
    """Return the counts of one arm under one condition; there must be outcomes.

    `free` are the outcomes of the free arm with which this one is compared in pairs.
    """
    n = len(outcomes)
    masses = [o.mass_kept for o in outcomes if o.mass_kept is not None]
    others = {_task(o): o for o in free}
    both = [(o, others[key]) for o in outcomes if (key := _task(o)) in others]
    return Row(
        condition=condition,
        arm=arm,
        tasks=n,
        counts={m: sum(bool(getattr(o, m)) for o in outcomes) for m in METRICS},
        tokens=round(sum(o.tokens for o in outcomes) / n, 1),
        forwarded=round(sum(o.forwarded for o in outcomes) / n, 1),
        mass_kept=round(sum(masses) / len(masses), 6) if masses else None,
        by_family=_by_family(outcomes),
        paired_tasks=len(both),
        paired={m: _only(m, both) for m in PAIRED} if both else {},
    )


def _task(outcome: Outcome) -> tuple[str, int]:
    return outcome.family, outcome.number


def _only(metric: str, both: Sequence[tuple[Outcome, Outcome]]) -> list[int]:
    """Return how often only the first of two passed, and how often only the other."""
    passed = [tuple(bool(getattr(o, metric)) for o in pair) for pair in both]
    return [passed.count((True, False)), passed.count((False, True))]


def _by_family(outcomes: Sequence[Outcome]) -> dict[str, float]:
    solved: dict[str, list[bool]] = {}
    for outcome in outcomes:
        solved.setdefault(outcome.family, []).append(outcome.solved)
    return {family: round(sum(s) / len(s), 6) for family, s in solved.items()}


def table(rows: Sequence[Row]) -> str:
    """Return the shares as text, in percent, each above its 95 % interval."""
    heads = "".join(f"{head:>13}" for head in METRICS.values())
    lines = [f"{'':12}{'tasks':>6}{heads}"]
    for condition, found in groupby(rows, key=lambda r: r.condition):
        lines.append(condition)
        for r in found:
            shares = "".join(f"{percent(r.share(m)):>13}" for m in METRICS)
            spreads = "".join(f"{spread(r.counts[m], r.tasks):>13}" for m in METRICS)
            lines += [f"  {r.arm:10}{r.tasks:>6}{shares}", f"{'':18}{spreads}"]
    return "\n".join(lines)


def pairs(rows: Sequence[Row]) -> str:
    """Return each arm in pairs with the free one, task by task, as text; "" for none.

    The p is that of `sign_test`: how often chance alone would split so unevenly the
    tasks that passed in one of the two only.
    """
    heads = "".join(f"{METRICS[m] + ': arm':>14}{'free':>7}{'p':>9}" for m in PAIRED)
    lines = [CAPTION, f"{'':12}{'tasks':>6}{heads}"]
    compared = [r for r in rows if r.paired]
    for condition, found in groupby(compared, key=lambda r: r.condition):
        lines.append(condition)
        for r in found:
            cells = "".join(
                f"{it:>14}{free:>7}{chance(sign_test(it, free)):>9}"
                for it, free in r.paired.values()
            )
            lines.append(f"  {r.arm:10}{r.paired_tasks:>6}{cells}")
    return "\n".join(lines) if compared else ""


def families(rows: Sequence[Row]) -> str:
    """Return the share of each family's tasks that were solved, in percent, as text."""
    widths = {name: max(7, len(name) + 2) for r in rows for name in r.by_family}
    heads = "".join(f"{name:>{width}}" for name, width in widths.items())
    lines = [f"{'':12}{heads}"]
    for condition, found in groupby(rows, key=lambda r: r.condition):
        lines.append(condition)
        for r in found:
            shares = {name: percent(share) for name, share in r.by_family.items()}
            cells = "".join(
                f"{shares.get(name, '-'):>{width}}" for name, width in widths.items()
            )
            lines.append(f"  {r.arm:10}{cells}")
    return "\n".join(lines)


def costs(rows: Sequence[Row]) -> str:
    """Return the mean cost of a task, and the retained probability mass, as text."""
    lines = [f"{'':17}{'tokens':>9}{'forwarded':>11}{'mass kept, %':>14}"]
    for condition, found in groupby(rows, key=lambda r: r.condition):
        lines.append(condition)
        for r in found:
            mass = "-" if r.mass_kept is None else percent(r.mass_kept)
            lines.append(f"  {r.arm:15}{r.tokens:>9.1f}{r.forwarded:>11.1f}{mass:>14}")
    return "\n".join(lines)
