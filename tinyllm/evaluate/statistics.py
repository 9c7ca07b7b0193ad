"""What counts of tasks say, and how they are written: intervals, pairs, percent.

`wilson(k, n)` is the interval of one share. Two ways that met the same tasks are
compared in pairs, by `sign_test(wins, losses)`.

One rule for every percentage that this project prints: `percent` rounds a share to one
decimal, where only none is 0.0 and only all is 100.0; `spread` rounds its interval to
one decimal outwards, so that nothing the interval contains is left out.
"""

from __future__ import annotations

import math


def wilson(k: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """Return the interval that contains the true share in 95 % of such samples.

    The sample has `k` successes among `n`; bounds are 0 to 1. Source: Wilson 1927.

    >>> [round(x, 3) for x in wilson(25, 25)]
    [0.867, 1.0]
    """
    share, spread = k / n, z * z / n
    middle = share + spread / 2
    half = z * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return max(0.0, (middle - half) / (1 + spread)), min(
        1.0, (middle + half) / (1 + spread)
    )


def sign_test(wins: int, losses: int) -> float:
    """Return p, how often fair coins split at least as unevenly, to either side.

    `wins` are the tasks that only one of two ways solves, `losses` those that only the
    other does. A task that both solve, or neither, says nothing about which is better.
    The test is exact. Source: McNemar 1947; the sign test is older (Arbuthnot 1710).

    >>> sign_test(5, 0), sign_test(2, 3), sign_test(0, 0)
    (0.0625, 1.0, 1.0)
    """
    n, k = wins + losses, min(wins, losses)
    # whole numbers up to the one division: 2.0**n would overflow
    tail = sum(math.comb(n, i) for i in range(k + 1))
    return min(1.0, 2 * tail / (1 << n))


def percent(share: float) -> str:
    """Return a share, 0 to 1, in percent by the rule above.

    >>> percent(1.0), percent(0.99975), percent(0.00025), percent(0.0)
    ('100.0', '99.9', '0.1', '0.0')
    """
    value = 100 * share
    return f"{value if value in (0, 100) else min(max(value, 0.1), 99.9):.1f}"


def spread(k: int, n: int) -> str:
    """Return the interval of `k` among `n` in percent by the rule above.

    >>> spread(476, 500)
    '92.9-96.8'
    """
    low, high = (1000 * bound for bound in wilson(k, n))
    return f"{math.floor(low) / 10:.1f}-{math.ceil(high) / 10:.1f}"


def chance(p: float) -> str:
    """Return a p with four decimals, never as none.

    >>> chance(0.0625), chance(1e-9)
    ('0.0625', '<0.0001')
    """
    return "<0.0001" if p < 0.0001 else f"{p:.4f}"
