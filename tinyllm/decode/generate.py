"""The loop: logits, one choice, forward, again. `choose_tokens`, `stream`, `generate`.

`choose_tokens` yields each token and how it was chosen; a grammar may limit which are
legal. `stream` turns that into text piece by piece, `generate` into one `Generation`.

Before this: `session`. Next: `stop`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tinyllm.decode.sampling import Sampler, softmax
from tinyllm.decode.session import Session
from tinyllm.decode.stop import StopStrings
from tinyllm.decode.threads import one_blas_thread
from tinyllm.engine import Array, Engine
from tinyllm.errors import ContextFullError, GrammarError, UsageError, check_int
from tinyllm.text.stream import TextStream, after_bos

Mask = NDArray[np.bool_]


class Grammar(Protocol):
    """The rule for which tokens are legal; a state is any immutable, hashable value.

    Where a text is complete and no token is legal, not even eos, a further method
    `is_done(state)` must return True; without it such a state is an error.
    """

    def start(self) -> Any:
        """Return the state before the first token."""

    def mask(self, state: Any) -> Mask:
        """Return which ids are legal: bool (V,)."""

    def advance(self, state: Any, token_id: int) -> Any:
        """Return the state after a legal token."""

    def finish(self, state: Any) -> tuple[int, ...]:
        """Return the shortest completion, without eos; empty for a complete text."""


@dataclass(frozen=True, eq=False)
class Choice:
    """One token and how it was chosen.

    `logits` (V,) are the model's own, before any mask. Without a grammar `mask` (V,)
    and `legal`, the number of legal tokens, are None. `forced`: the grammar supplied
    the token because the budget was running out.
    """

    token_id: int
    logits: Array = field(repr=False)
    mask: Mask | None = field(default=None, repr=False)
    legal: int | None = None
    forced: bool = False

    @cached_property
    def wanted(self) -> int:
        """Return the id that the model alone would have put first."""
        return int(self.logits.argmax())

    @property
    def stepped_in(self) -> bool:
        """Return whether the mask forbade the token that the model alone put first."""
        if self.mask is None or self.forced:
            return False
        return not self.mask[self.wanted]

    @cached_property
    def probability(self) -> float:
        """Return the probability that the model alone gave to the token."""
        return float(softmax(self.logits)[self.token_id])

    @cached_property
    def mass_kept(self) -> float | None:
        """Return the retained probability mass: that of all legal ids together."""
        if self.mask is None:
            return None
        return float(softmax(self.logits)[self.mask].sum())


@dataclass(frozen=True)
class Generation:
    """A generated text and why it ended.

    `stop_reason` is "eos", "stop", "grammar", "length" or "context"; `token_ids` are
    all ids that were chosen: those that spelled a stop string too.
    """

    text: str
    token_ids: tuple[int, ...]
    stop_reason: str


def choose_tokens(
    lm: Engine,
    session: Session,
    logits: Array,
    sampler: Sampler,
    max_new_tokens: int,
    grammar: Grammar | None = None,
) -> Generator[Choice, None, str]:
    """Yield one choice a token, from the logits (V,) after the session's last id.

    A token is forwarded when the next choice is asked for, so the last one never is.
    An eos id ends the text and is not yielded. With a grammar its shortest completion
    is yielded in time, so that a text within the budget is complete. The generator's
    return value is the reason why it ended. Raises GrammarError or ContextFullError
    where not even the shortest text fits, GrammarError in a state without legal tokens.
    """
    budget = min(max_new_tokens, session.n_free)  # the context may end first
    full = "length" if budget == max_new_tokens else "context"
    if grammar is None:
        return (yield from _free(lm, session, logits, sampler, budget)) or full
    if not can_finish(grammar, grammar.start(), budget):
        needed = len(grammar.finish(grammar.start()))
        if needed > max_new_tokens:
            raise GrammarError(
                f"the shortest text the grammar allows has {needed} tokens, "
                f"max_new_tokens is {max_new_tokens}: raise it"
            )
        raise ContextFullError(
            f"the shortest text the grammar allows has {needed} tokens, but only "
            f"{budget} positions are left of {session.length + session.n_free}"
        )
    return (yield from _legal(lm, session, logits, sampler, budget, grammar)) or full


def _free(
    lm: Engine, session: Session, logits: Array, sampler: Sampler, budget: int
) -> Generator[Choice, None, str]:
    for left in range(budget, 0, -1):
        token_id = sampler.pick(logits, session.last(sampler.looks_back))
        if token_id in lm.tokenizer.eos_ids:
            return "eos"
        yield Choice(token_id, logits)
        if left > 1:  # nobody needs the logits after the last token
            logits = lm.decode(session, token_id)  # (V,)
    return ""


def _legal(
    lm: Engine,
    session: Session,
    logits: Array,
    sampler: Sampler,
    budget: int,
    grammar: Grammar,
) -> Generator[Choice, None, str]:
    state, eos_ids = grammar.start(), lm.tokenizer.eos_ids
    token_id = -1  # none yet
    forced: tuple[int, ...] = ()
    for left in range(budget, 0, -1):
        mask = grammar.mask(state)  # (V,)
        # before the token is forwarded: at the end of a text that would be for nothing
        if _must_end(grammar, state, eos_ids):
            return "grammar"
        if left < budget:
            logits = lm.decode(session, token_id)  # (V,)
        if not forced:
            # the mask first: temperature and filters then share among legal tokens
            masked = np.where(mask, logits, np.float32(-np.inf))  # (V,)
            token_id = sampler.pick(masked, session.last(sampler.looks_back))
            if token_id in eos_ids:
                return "eos"
            if not can_finish(grammar, grammar.advance(state, token_id), left - 1):
                # its token would lead too far: the grammar writes the end from here
                forced = grammar.finish(state)
                if not forced:
                    return ""  # the text is complete, and the model's token is too much
        is_forced = bool(forced)
        if forced:
            token_id, forced = forced[0], forced[1:]
        yield Choice(token_id, logits, mask, int(np.count_nonzero(mask)), is_forced)
        state = grammar.advance(state, token_id)
    return "grammar" if _must_end(grammar, state, eos_ids) else ""


def can_finish(grammar: Grammar, state: Any, n: int) -> bool:
    """Return whether n more tokens can complete the text.

    A grammar may have a method of this name, which is quicker than `finish`.
    """
    known = getattr(grammar, "can_finish", None)
    return bool(known(state, n)) if known else len(grammar.finish(state)) <= n


def _must_end(grammar: Grammar, state: Any, eos_ids: frozenset[int]) -> bool:
    """Return whether nothing but an eos id is legal; GrammarError at a dead end."""
    mask = grammar.mask(state)
    legal = int(np.count_nonzero(mask))
    if legal:
        return legal == sum(bool(mask[i]) for i in eos_ids)
    is_done = getattr(grammar, "is_done", None)
    if is_done is not None and is_done(state):
        return True
    raise GrammarError(
        f"in state {state!r:.80} of the grammar no token is legal and the text is not "
        "complete: let mask allow eos there, or is_done(state) return True"
    )


def stream(
    lm: Engine,
    prompt: str,
    max_new_tokens: int = 50,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    stop: Sequence[str] = (),
    grammar: Grammar | None = None,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    repetition_window: int = 64,
) -> Generator[str, None, Generation]:
    """Yield the text that follows the prompt, piece by piece; return the `Generation`.

    A piece has whole characters only, and none that may still turn out to be part of a
    stop string. The repetition penalty counts the prompt's ids too. Raises UsageError,
    ContextFullError or GrammarError.
    """
    max_new_tokens = check_int("max_new_tokens", max_new_tokens)
    _check_kinds(prompt, grammar)
    penalty = (repetition_penalty, repetition_window)
    sampler = Sampler(temperature, top_k, top_p, seed, min_p, *penalty)
    watch, characters = StopStrings(stop), TextStream(lm.tokenizer, prompt == "")
    token_ids: list[int] = []
    pieces: list[str] = []
    reason = ""
    with one_blas_thread():  # small products lose more by threads than they gain
        session = lm.session()
        logits = lm.prefill(session, after_bos(lm.tokenizer, lm.tokenize(prompt)))
        choices = choose_tokens(lm, session, logits, sampler, max_new_tokens, grammar)
        while not (reason or watch.stopped):
            try:
                token_ids.append(next(choices).token_id)
                pieces.append(watch.push(characters.push(token_ids[-1])))
            except StopIteration as end:
                reason = end.value  # a generator returns its value this way
                pieces.append(watch.push(characters.flush()) + watch.flush())
            if pieces[-1]:
                yield pieces[-1]
    reason = "stop" if watch.stopped else reason
    return Generation("".join(pieces), tuple(token_ids), reason)


def _check_kinds(prompt: object, grammar: object) -> None:
    if not isinstance(prompt, str):
        raise UsageError(f"the prompt must be a text, not {type(prompt).__name__}")
    if isinstance(grammar, str | dict):
        raise UsageError(
            f"a grammar must be compiled, not {grammar!r:.40}: give "
            "tinyllm.grammar.compile(source, lm.tokenizer)"
        )


def generate(lm: Engine, prompt: str, **options: Any) -> Generation:
    """Return the text that follows the prompt; the options are those of `stream`."""
    pieces = stream(lm, prompt, **options)
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
