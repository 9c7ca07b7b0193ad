"""A text written under a grammar, in which you can go back and choose anew: `Walk`.

A `Step` is one token, how it came to be, and the state of the grammar before it. States
are values and a session rewinds, so going back costs nothing and going on forwards only
what the session does not hold: of two branches it holds the last.
`tinyllm.widgets.mask_explorer` shows a walk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from tinyllm.decode.generate import Choice, choose_tokens
from tinyllm.decode.sampling import Sampler
from tinyllm.engine import Engine
from tinyllm.errors import GrammarError, UsageError
from tinyllm.grammar.mask import Mask, TokenGrammar

MODEL, HAND, CEILING = "model", "hand", "ceiling"


@dataclass(frozen=True)
class Step:
    """One token: the choice, the state before it, and by whom it was chosen.

    `by` is "model", "hand", or "ceiling" where the budget was running out.
    """

    choice: Choice
    state: Any
    by: str = MODEL

    @property
    def stepped_in(self) -> bool:
        """Whether the mask forbade what the model wanted."""
        return self.by == MODEL and self.choice.stepped_in


@dataclass(frozen=True)
class Deed:
    """What was done, and how far it moved the session's own counters."""

    words: str
    forwarded: int
    reused: int

    def __str__(self) -> str:
        return f"{self.words}: forwarded {self.forwarded}, reused {self.reused}"


class Walk:
    """The steps so far after a prompt, under a grammar, within a budget of tokens.

    `deeds` tells what was done, `ended` whether the text is over. A hand may choose any
    legal token after which the budget suffices, so the text can always be completed.
    """

    def __init__(
        self,
        lm: Engine,
        prompt: Sequence[int],
        grammar: TokenGrammar,
        budget: int = 96,
        sampler: Sampler | None = None,
    ) -> None:
        self.lm, self.session = lm, lm.session()
        self.prompt, self.grammar = list(prompt), grammar
        self.budget, self.sampler = budget, sampler or Sampler()
        self.steps: tuple[Step, ...] = ()
        self.deeds: tuple[Deed, ...] = ()
        self.ended = False
        self._earlier: list[tuple[tuple[Step, ...], bool]] = []

    @property
    def token_ids(self) -> list[int]:
        """Return the ids after the prompt."""
        return [step.choice.token_id for step in self.steps]

    @property
    def state(self) -> Any:
        """Return the grammar's state after the last step."""
        if not self.steps:
            return self.grammar.start()
        last = self.steps[-1]
        return self.grammar.advance(last.state, last.choice.token_id)

    @property
    def can_undo(self) -> bool:
        """Return whether there are steps to go back to."""
        return bool(self._earlier)

    def go_on(self, n: int | None = None) -> int:
        """Return how many tokens the model chose: n at most, or to the end.

        Raises GrammarError or ContextFullError where not even the shortest text fits.
        """
        left = self.budget - len(self.steps)
        if self.ended:
            return 0
        before, state, added = self._counts(), self.state, list[Step]()
        ids = [*self.prompt, *self.token_ids]
        logits = self.lm.prefill(self.session, ids)  # (V,)
        rest = _Rest(self.grammar, state)
        chosen = choose_tokens(self.lm, self.session, logits, self.sampler, left, rest)
        for choice in islice(chosen, n):
            added.append(Step(choice, state, CEILING if choice.forced else MODEL))
            state = self.grammar.advance(state, choice.token_id)
        words = f"the model chose {len(added)} token" + "s" * (len(added) != 1)
        stopped = n is None or len(added) < n
        self._do(words, before, (*self.steps, *added), stopped)
        return len(added)

    def take(self, step: int, token_id: int) -> None:
        """Choose a token by hand in place of step number `step`; what follows is gone.

        Nothing is forwarded. UsageError for a step there is not, GrammarError for an
        illegal token or one after which the budget is too short.
        """
        if not 0 <= step < len(self.steps):
            raise UsageError(f"step is {step}; expected 0 to {len(self.steps) - 1}")
        old = self.steps[step]
        after = self.grammar.advance(old.state, token_id)
        left = self.budget - step - 1
        if token_id in self.grammar.vocabulary.eos_ids:
            raise GrammarError(f"token {token_id} ends the text: it is not a step")
        if not self.grammar.can_finish(after, left):
            needed = len(self.grammar.finish(after))
            raise GrammarError(
                f"after token {token_id} the text needs {needed} more, and {left} are "
                "left of the budget: choose another or raise the budget"
            )
        mine = Choice(token_id, old.choice.logits, old.choice.mask, old.choice.legal)
        before = self._counts()
        kept = (*self.steps[:step], Step(mine, old.state, HAND))
        self._do(f"token {step + 1} chosen by hand", before, kept)

    def undo(self) -> None:
        """Take back the last deed: the steps are those before it, forwarding nothing.

        UsageError if there is nothing to go back to.
        """
        if not self._earlier:
            raise UsageError("there are no earlier steps to go back to")
        self.steps, self.ended = self._earlier.pop()
        self.deeds += (Deed(f"undo, {len(self.steps)} tokens again", 0, 0),)

    def _do(
        self,
        words: str,
        before: tuple[int, int],
        steps: tuple[Step, ...],
        stopped: bool = False,
    ) -> None:
        if self.steps:
            self._earlier.append((self.steps, self.ended))
        self.steps = steps
        full = len(steps) == self.budget
        self.ended = stopped or full or self.grammar.is_done(self.state)
        forwarded, reused = np.subtract(self._counts(), before).tolist()
        self.deeds += (Deed(words, forwarded, reused),)

    def _counts(self) -> tuple[int, int]:
        return self.session.forwarded, self.session.reused


@dataclass(frozen=True)
class _Rest:
    """A grammar that begins in the middle of a text."""

    grammar: TokenGrammar
    state: Any

    def start(self) -> Any:
        """Return the state in which it begins."""
        return self.state

    def mask(self, state: Any) -> Mask:
        """Return the legal ids (V,)."""
        return self.grammar.mask(state)

    def advance(self, state: Any, token_id: int) -> Any:
        """Return the state after a token."""
        return self.grammar.advance(state, token_id)

    def finish(self, state: Any) -> tuple[int, ...]:
        """Return the shortest completion."""
        return self.grammar.finish(state)

    def can_finish(self, state: Any, n: int) -> bool:
        """Return whether n more tokens are enough."""
        return self.grammar.can_finish(state, n)

    def is_done(self, state: Any) -> bool:
        """Return whether nothing can follow."""
        return self.grammar.is_done(state)
