"""The theorem of the KV cache: in pieces or at once, rewound or fresh: equal logits.

`verify_kv(model, token_ids)` gives a `Check` for each claim: prefill and decode against
one full pass, every split, every rewind point, and then four injected bugs that must be
noticed. `blind_spots` shows what would not be. Logits are compared and never texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tinyllm.decode.session import Session, common_prefix
from tinyllm.errors import ContextFullError, PromptTooShortError
from tinyllm.model.cache import KVCache
from tinyllm.model.layers import Array
from tinyllm.model.transformer import Model
from tinyllm.progress import ignore
from tinyllm.verify.injected import SlippedCache, shifted

LIMIT = 1e-4  # between logits that are equal up to rounding; a bug makes more
ROUNDING = (
    5e-6  # of the largest logit, where that is more: float32 rounds in proportion
)
AFTER = 4  # other ids that follow each rewind
SURVIVAL = 100  # tokens for which a greedy text is followed

OnCase = Callable[[], object]


@dataclass(frozen=True)
class Check:
    """One claim and what was found: the worst difference between logits of `cases`.

    `bits`: all of them were equal bit for bit.
    """

    name: str
    cases: int
    difference: float
    passed: bool
    bits: bool = False
    expected: str = ""

    def __str__(self) -> str:
        found = "bit for bit" if self.bits else f"{self.difference:.1e}"
        verdict = "PASS" if self.passed else "FAIL"
        cases = f"{self.cases} case" + "s" * (self.cases != 1)
        return f"{verdict}  {self.name:32} {cases:>10}  {found:>11}  {self.expected}"


@dataclass
class _Worst:
    """The worst of all cases so far, within a limit."""

    limit: float
    cases: int = 0
    difference: float = 0.0
    bits: bool = True

    def add(self, found: Array, right: Array) -> None:
        """Compare logits (T, V)."""
        self.cases += 1
        if np.array_equal(found, right):
            return
        self.bits = False
        self.difference = max(self.difference, difference(found, right))

    def check(self, name: str, exact: bool) -> Check:
        """Return the claim with its verdict: in exact mode, nothing less than equal."""
        expected = "equal bit for bit" if exact else f"at most {self.limit:.1e}"
        passed = self.bits if exact else self.difference <= self.limit
        return Check(name, self.cases, self.difference, passed, self.bits, expected)


def difference(a: Array, b: Array) -> float:
    """Return the largest absolute difference, infinite where one is not a number."""
    worst = float(np.abs(a - b).max())
    return worst if worst == worst else np.inf


def limit_of(logits: Array) -> float:
    """Return how far logits may be from these and still be equal up to rounding.

    An argmax can then differ only where the two best are within twice as much.
    """
    return max(LIMIT, ROUNDING * float(np.abs(logits).max()))


def prefill_decode(
    model: Model, token_ids: Sequence[int], cache: KVCache | None = None
) -> Array:
    """Return logits (V,) after prefill(all but the last) and decode(the last)."""
    cache = KVCache(model.config) if cache is None else cache
    model.forward(token_ids[:-1], cache)
    return model.forward(token_ids[-1:], cache)[0]  # type: ignore[no-any-return]


def every_split(
    model: Model, token_ids: Sequence[int], on_case: OnCase = ignore
) -> Check:
    """Return how the logits of two pieces differ from one pass, for each split point.

    A split after n of T ids compares n + (T - n) rows; there are T - 1 of them.
    """
    whole = model.forward(token_ids)  # (T, V)
    worst = _Worst(limit_of(whole))
    for n in range(1, len(token_ids)):
        cache = KVCache(model.config)
        pieces = token_ids[:n], token_ids[n:]
        worst.add(np.concatenate([model.forward(p, cache) for p in pieces]), whole)
        on_case()
    return worst.check("every split point", model.exact)


def every_rewind(
    model: Model, token_ids: Sequence[int], on_case: OnCase = ignore
) -> Check:
    """Return the same for each point to which one cache, that held all, is rewound.

    Other ids follow and are compared with a cold pass; then back again, and the old ids
    follow. So each case reads slots that were overwritten twice.
    """
    whole = model.forward(token_ids)  # (T, V)
    worst = _Worst(limit_of(whole))
    cache = KVCache(model.config)
    model.forward(token_ids, cache)
    others = _others(model, token_ids)
    for n in range(len(token_ids)):
        cache.rewind(n)
        warm = model.forward(others, cache)  # (AFTER, V)
        worst.add(warm, model.forward([*token_ids[:n], *others])[n:])
        cache.rewind(n)
        worst.add(model.forward(token_ids[n:], cache), whole[n:])
        on_case()
    return worst.check("every rewind point", model.exact)


def injected_bugs(model: Model, token_ids: Sequence[int]) -> list[Check]:
    """Return for each of four bugs the difference it makes, which must be noticed.

    Other ids are appended to the prompt: where all ids are the same, so are all values,
    and it does not matter which position reads which.
    """
    token_ids = [*token_ids, *_others(model, token_ids)]
    right = model.forward(token_ids)[-1]  # (V,)
    limit = limit_of(right)
    plain, slipped = KVCache(model.config), SlippedCache(model.config)
    bugs = {
        "bug: decode one position late": (shifted(model, decode=1), plain),
        "bug: decode one position early": (shifted(model, decode=-1), plain),
        "bug: prefill one position late": (shifted(model, prefill=1), plain),
        "bug: cache slot one too far": (model, slipped),
    }
    checks = []
    for name, (broken, cache) in bugs.items():
        cache.length = 0
        made = difference(prefill_decode(broken, token_ids, cache), right)
        checks.append(Check(name, 1, made, made > limit, False, f"above {limit:.1e}"))
    return checks


def _others(model: Model, token_ids: Sequence[int]) -> list[int]:
    """Return `AFTER` ids that are not those of the prompt's beginning."""
    first = [*token_ids[:AFTER], *range(AFTER)][:AFTER]
    return [(i + 1 + n) % model.config.vocab_size for n, i in enumerate(first)]


def blind_spots(model: Model, token_ids: Sequence[int]) -> tuple[float, int]:
    """Return two figures that show what a check by eye, or by text, cannot see.

    The difference between logits when every position is one too late (RoPE knows
    distances only), and how many greedy tokens a model with decode steps one position
    late writes like the right one: at most `SURVIVAL`.
    """
    late = shifted(model, prefill=1, decode=1)
    right = model.forward(token_ids)[-1]  # (V,)
    made = difference(prefill_decode(late, token_ids), right)
    texts = [list(_greedy(m, token_ids)) for m in (model, shifted(model, decode=1))]
    return made, common_prefix(*texts)


def _greedy(model: Model, token_ids: Sequence[int]) -> Iterator[int]:
    """Yield the ids that a model puts first, each after the ones before."""
    session = Session(model)
    logits = session.feed(token_ids)  # (V,)
    # one position stays free: a late decode step turns to the next one's angle
    for _ in range(min(SURVIVAL, session.room - 1)):
        token_id = int(logits.argmax())
        yield token_id
        logits = session.extend([token_id])


def verify_kv(
    model: Model, token_ids: Sequence[int], on_case: OnCase = ignore
) -> list[Check]:
    """Return all claims for one prompt; `on_case` is called 2 T - 1 times on the way.

    Raises PromptTooShortError below 3 ids, ContextFullError where not more than
    `AFTER` positions would be left, InvalidTokenError.
    """
    ids = model.check(token_ids)
    n_ctx = model.config.n_ctx
    if len(ids) < 3:
        raise PromptTooShortError(
            f"the prompt has {len(ids)} token ids: give 3 or more, so that there is a "
            "prefill of several and a decode step"
        )
    if len(ids) + AFTER >= n_ctx:
        raise ContextFullError(
            f"the prompt has {len(ids)} ids, and {AFTER} more are appended to it: give "
            f"at most {n_ctx - AFTER - 1} for a context of {n_ctx}"
        )
    whole = model.forward(ids)[-1:]  # (1, V)
    worst = _Worst(limit_of(whole))
    worst.add(prefill_decode(model, ids)[None], whole)
    return [
        worst.check("prefill + decode = full forward", model.exact),
        every_split(model, ids, on_case),
        every_rewind(model, ids, on_case),
        *injected_bugs(model, ids),
    ]
