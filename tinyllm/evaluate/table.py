"""Outcomes counted: a `Row` for each condition and arm, as a table and as JSON.

`row(condition, arm, outcomes)` counts; `table(rows)`, `families(rows)` and
`costs(rows)` return text to print; `Row.to_json` and `from_json` go through a file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any

from tinyllm.evaluate.ablation import Outcome
from tinyllm.evaluate.held_out import wilson

# metric -> heading in the table; the first two measure syntax
METRICS = {
    "parsed": "parsed",
    "valid": "valid",
    "right_tool": "right tool",
    "right_args": "right args",
    "solved": "solved",
}
SYNTAX = ("parsed", "valid")


@dataclass(frozen=True)
class Row:
    """How many of `tasks` passed each of METRICS, and what a task cost on average.

    `by_family` has the share of each family's tasks that were solved.
    """

    condition: str
    arm: str
    tasks: int
    counts: dict[str, int]
    tokens: float
    forwarded: float
    mass_kept: float | None
    by_family: dict[str, float] = field(default_factory=dict)

    def share(self, metric: str) -> float:
        """Return the share of tasks, 0 to 1."""
        return self.counts[metric] / self.tasks

    def interval(self, metric: str) -> tuple[float, float]:
        """Return the 95 % interval of the share. Source: Wilson 1927."""
        return wilson(self.counts[metric], self.tasks)

    def to_json(self) -> dict[str, Any]:
        """Return the row as a plain dict, intervals included."""
        intervals = {m: [round(x, 4) for x in self.interval(m)] for m in METRICS}
        return asdict(self) | {"intervals": intervals}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Row:
        """Return the row that `to_json` wrote."""
        return cls(**{k: v for k, v in plain.items() if k != "intervals"})


def row(condition: str, arm: str, outcomes: Sequence[Outcome]) -> Row:
    """Return the counts of one arm under one condition; there must be outcomes."""
    n = len(outcomes)
    masses = [o.mass_kept for o in outcomes if o.mass_kept is not None]
    return Row(
        condition=condition,
        arm=arm,
        tasks=n,
        counts={m: sum(bool(getattr(o, m)) for o in outcomes) for m in METRICS},
        tokens=round(sum(o.tokens for o in outcomes) / n, 1),
        forwarded=round(sum(o.forwarded for o in outcomes) / n, 1),
        mass_kept=round(sum(masses) / len(masses), 6) if masses else None,
        by_family=_by_family(outcomes),
    )


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
            shares = "".join(f"{_percent(r.share(m)):>13}" for m in METRICS)
            spreads = "".join(f"{spread(r, m):>13}" for m in METRICS)
            lines += [f"  {r.arm:10}{r.tasks:>6}{shares}", f"{'':18}{spreads}"]
    return "\n".join(lines)


def families(rows: Sequence[Row]) -> str:
    """Return the share of each family's tasks that were solved, in percent, as text."""
    widths = {name: max(7, len(name) + 2) for r in rows for name in r.by_family}
    heads = "".join(f"{name:>{width}}" for name, width in widths.items())
    lines = [f"{'':12}{heads}"]
    for condition, found in groupby(rows, key=lambda r: r.condition):
        lines.append(condition)
        for r in found:
            shares = {name: _percent(share) for name, share in r.by_family.items()}
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
            mass = "-" if r.mass_kept is None else _percent(r.mass_kept)
            lines.append(f"  {r.arm:15}{r.tokens:>9.1f}{r.forwarded:>11.1f}{mass:>14}")
    return "\n".join(lines)


def spread(found: Row, metric: str) -> str:
    """Return the interval of a share in percent, rounded outwards.

    >>> spread(Row("c", "a", 500, {"solved": 476}, 0, 0, None), "solved")
    '92.9-96.8'
    """
    low, high = (1000 * bound for bound in found.interval(metric))
    return f"{math.floor(low) / 10:.1f}-{math.ceil(high) / 10:.1f}"


def _percent(share: float) -> str:
    """Return a share in percent: 3999 of 4000 is not 100.0, and all is plain 100.

    >>> _percent(1.0), _percent(0.99975), _percent(0.0)
    ('100', '99.9', '0')
    """
    percent = 100 * share
    return f"{percent:.0f}" if percent in (0, 100) else f"{min(percent, 99.9):.1f}"
