"""The theorem of the KV cache: in pieces or at once, rewound or fresh: equal logits.

`verify(lm, prompt)` compares prefill and decode with one full pass. `verify_kv` gives a
`Check` for each claim: this one, every split, every rewind point, and then four
injected bugs that must be noticed. `blind_spots` shows what goes unnoticed. All compare
logits and never texts, and all of them ask an `Engine`.

Before this: `train/command`. Next: `injected`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tinyllm.decode.session import common_prefix
from tinyllm.engine import Array, Engine
from tinyllm.errors import ContextFullError, InferenceError, PromptTooShortError
from tinyllm.numpy_engine import NumpyEngine
from tinyllm.progress import ignore
from tinyllm.text.stream import after_bos
from tinyllm.verify.injected import shifted, slipped

ROUNDING = 5e-6  # of the largest logit: float32 rounds in proportion
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


class _Worst:
    """The worst difference of all cases so far, and the most that may be."""

    def __init__(self, lm: Engine, logits: Array) -> None:
        self.limit = 0.0 if lm.exact else limit_of(logits)
        self.cases, self.difference, self.bits = 0, 0.0, True

    def add(self, found: Array, right: Array) -> None:
        """Compare logits (T, V)."""
        self.cases += 1
        self.bits = self.bits and np.array_equal(found, right)
        self.difference = max(self.difference, difference(found, right))

    def check(self, name: str) -> Check:
        """Return the claim with its verdict: in exact mode, nothing less than equal."""
        expected = f"at most {self.limit:.1e}" if self.limit else "equal bit for bit"
        passed = self.bits or (self.limit > 0 and self.difference <= self.limit)
        return Check(name, self.cases, self.difference, passed, self.bits, expected)


def difference(a: Array, b: Array) -> float:
    """Return the largest absolute difference, infinite for NaN or another shape."""
    if a.shape != b.shape:
        return np.inf
    worst = float(np.abs(a - b).max())
    return worst if worst == worst else np.inf


def limit_of(logits: Array) -> float:
    """Return how far logits may be from these and still be equal up to rounding.

    An argmax can then differ only where the two best are within twice as much.
    """
    return ROUNDING * float(np.abs(logits).max())


def full_forward(lm: Engine, token_ids: Sequence[int]) -> Array:
    """Return logits (T, V) of one pass in a new session, which all else must equal.

    Raises PromptTooShortError below 2 ids, InferenceError for NaN or infinite logits.
    """
    with np.errstate(invalid="ignore", over="ignore"):  # the error says it better
        logits = lm.score(lm.session(), token_ids)  # (T, V)
    if len(logits) < 2:
        raise PromptTooShortError(
            "the prompt has 1 token id: give 2 or more, so that there is a prefill and "
            "a decode step"
        )
    if not np.isfinite(logits).all():
        raise InferenceError(
            "logits are not finite: there is a NaN or an infinity in the weights, so "
            "there is nothing to compare; load another copy of the model"
        )
    return logits


def prefill_decode(lm: Engine, token_ids: Sequence[int]) -> Array:
    """Return logits (V,) after prefill(all but the last) and decode(the last)."""
    session = lm.session()
    lm.prefill(session, token_ids[:-1])
    return lm.decode(session, token_ids[-1])


def verify(lm: Engine, prompt: str | Sequence[int]) -> float:
    """Return the largest absolute difference of prefill + decode to one full pass.

    The prompt is a text or a list of ids. In exact mode the difference is 0.0, in fast
    mode at most `limit_of` the logits. Raises PromptTooShortError below 2 ids,
    InferenceError for logits that are not finite, and what the engine raises.
    """
    if isinstance(prompt, str):
        prompt = after_bos(lm.tokenizer, lm.tokenize(prompt))
    right = full_forward(lm, prompt)[-1]  # (V,)
    return difference(prefill_decode(lm, prompt), right)


def every_split(
    lm: Engine, token_ids: Sequence[int], on_case: OnCase = ignore
) -> Check:
    """Return how the logits of two pieces differ from one pass, for each split point.

    A split after n of T ids compares n + (T - n) rows; there are T - 1 of them.
    """
    whole = full_forward(lm, token_ids)  # (T, V)
    worst = _Worst(lm, whole)
    for n in range(1, len(token_ids)):
        session = lm.session()
        pieces = [lm.score(session, ids) for ids in (token_ids[:n], token_ids)]
        worst.add(np.concatenate(pieces), whole)
        on_case()
    return worst.check("every split point")


def every_rewind(
    lm: Engine, token_ids: Sequence[int], on_case: OnCase = ignore
) -> Check:
    """Return the same for each point to which one session, full once, is rewound.

    Other ids follow one by one and are compared with a cold pass; then back again, and
    the old ids follow at once. So each case reads slots that were overwritten twice.
    """
    whole = full_forward(lm, token_ids)  # (T, V)
    worst = _Worst(lm, whole)
    session = lm.session()
    lm.prefill(session, token_ids)
    others = _others(lm, token_ids)
    for n in range(len(token_ids)):
        session.rewind(n)
        warm = np.stack([lm.decode(session, i) for i in others])  # (AFTER, V)
        worst.add(warm, full_forward(lm, [*token_ids[:n], *others])[n:])
        session.rewind(n)
        worst.add(lm.score(session, token_ids), whole[n:])
        on_case()
    return worst.check("every rewind point")


def injected_bugs(lm: NumpyEngine, token_ids: Sequence[int]) -> list[Check]:
    """Return for each of four bugs the difference it makes, which must be noticed.

    Other ids are appended to the prompt: where all ids are the same, so are all values,
    and it does not matter which position reads which. In exact mode any difference is
    noticed, in fast mode only one that is more than rounding.
    """
    token_ids = [*token_ids, *_others(lm, token_ids)]
    right = full_forward(lm, token_ids)[-1]  # (V,)
    limit = 0.0 if lm.exact else limit_of(right)
    expected = f"above {limit:.1e}" if limit else "any difference"
    bugs = {
        "bug: decode one position late": shifted(lm, decode=1),
        "bug: decode one position early": shifted(lm, decode=-1),
        "bug: prefill one position late": shifted(lm, prefill=1),
        "bug: cache slot one too far": slipped(lm),
    }
    made = {
        name: difference(prefill_decode(broken, token_ids), right)
        for name, broken in bugs.items()
    }
    return [Check(name, 1, x, x > limit, False, expected) for name, x in made.items()]


def _others(lm: Engine, token_ids: Sequence[int]) -> list[int]:
    """Return `AFTER` ids that are not those of the prompt's beginning."""
    first = [*token_ids[:AFTER], *range(AFTER)][:AFTER]
    return [(i + 1 + n) % lm.tokenizer.vocab_size for n, i in enumerate(first)]


def blind_spots(lm: NumpyEngine, token_ids: Sequence[int]) -> tuple[float, int]:
    """Return two figures that show what a check by eye, or by text, cannot see.

    The difference between logits when every position is one too late (RoPE knows
    distances only), and how many greedy tokens an engine with decode steps one position
    late writes like the right one: at most `SURVIVAL`.
    """
    late = shifted(lm, prefill=1, decode=1)
    made = difference(prefill_decode(late, token_ids), full_forward(lm, token_ids)[-1])
    texts = [list(_greedy(e, token_ids)) for e in (lm, shifted(lm, decode=1))]
    return made, common_prefix(*texts)


def _greedy(lm: Engine, token_ids: Sequence[int]) -> Iterator[int]:
    """Yield the ids that a model puts first, each after the ones before."""
    session = lm.session()
    logits = lm.prefill(session, token_ids)  # (V,)
    # one position stays free: a late decode step takes the angle of the next one
    for _ in range(min(SURVIVAL, session.n_free - 1)):
        token_id = int(logits.argmax())
        yield token_id
        logits = lm.decode(session, token_id)


def verify_kv(
    lm: NumpyEngine, token_ids: Sequence[int], on_case: OnCase = ignore
) -> list[Check]:
    """Return all claims for one prompt; `on_case` is called 2 T - 1 times on the way.

    Raises PromptTooShortError below 2 ids, ContextFullError where not more than `AFTER`
    positions would be left, InvalidTokenError, and InferenceError for logits that are
    not finite.
    """
    whole = full_forward(lm, token_ids)  # (T, V)
    n_ctx = lm.session().n_ctx
    if len(whole) + AFTER >= n_ctx:
        raise ContextFullError(
            f"the prompt has {len(whole)} ids, and {AFTER} more are appended to it: "
            f"give at most {n_ctx - AFTER - 1} for a context of {n_ctx}"
        )
    worst = _Worst(lm, whole[-1])
    worst.add(prefill_decode(lm, token_ids), whole[-1])
    return [
        worst.check("prefill + decode = full forward"),
        every_split(lm, token_ids, on_case),
        every_rewind(lm, token_ids, on_case),
        *injected_bugs(lm, token_ids),
    ]
