"""The backend that runs here: it steps in between the logits and the sampling.

Public: `LocalBackend`.

A thought is one free line; a call is written under a grammar compiled from the tools,
so that it always parses. That is all a grammar gives: which tool and which arguments is
the model's own doing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tinyllm import grammar
from tinyllm.agent import options
from tinyllm.agent.backend import OnText, Slot, parses, total, unheard
from tinyllm.agent.one_line import OneLine
from tinyllm.agent.protocol import CALL_CEILING, THOUGHT_CEILING
from tinyllm.agent.tools import Registry
from tinyllm.decode.generate import Choice, Grammar, can_finish, choose_tokens
from tinyllm.decode.sampling import Sampler
from tinyllm.decode.threads import one_blas_thread
from tinyllm.errors import ContextFullError, UsageError
from tinyllm.grammar import calls
from tinyllm.text.stream import TextStream

if TYPE_CHECKING:
    from tinyllm.engine import Engine

AGAIN_AT = 0.8  # the lowest temperature of a second try: at 0 it would be the first
GRAMMARS_KEPT = 8  # a few kB of masks each


class LocalBackend:
    """Thoughts and calls from a model on this machine.

    The session persists: of a transcript only the ids by which it grew are forwarded.
    A free call (`constrain=False`) that does not parse is sampled again, up to
    `attempts` replies in all, from temperature 0.8 on. `calls`, `parsed` and `tokens`
    count over the life of the backend.
    """

    def __init__(
        self,
        lm: Engine,
        tools: Registry | None = None,
        *,
        temperature: float = 0.0,
        constrain: bool = True,
        seed: int = 0,
        keep_choices: bool = False,
        attempts: int = 1,
    ) -> None:
        self.lm = lm
        self.tokenizer = lm.tokenizer
        self.session = lm.session()
        self.n_ctx = self.session.n_ctx
        self.constrain = options.flag("constrain", constrain)
        self.keep_choices = keep_choices
        self.attempts = options.positive("attempts", attempts)
        self.calls = self.parsed = self.tokens = 0
        self.temperature, self.seed = temperature, seed
        self._grammars: dict[str, Grammar] = {}
        self._vocabulary = grammar.Vocabulary(self.tokenizer) if constrain else None
        self._thought = OneLine(self.tokenizer)
        self._free_call = OneLine(self.tokenizer, eos_ends=True)
        self.set_tools(tools)
        self.reset()

    def set_tools(self, tools: Registry | None) -> None:
        """Swap the tools; model, session and grammars made before are kept.

        UsageError if calls are constrained and there are no tools.
        """
        if self.constrain and not tools:
            raise UsageError("a constrained call needs tools, or say constrain=False")
        self.tools = tools or Registry([])
        self._grammar = self._compiled() if self.constrain else self._free_call

    def reset(self) -> None:
        """Start afresh: the session is empty and the dice are at `seed`."""
        self.session.reset()
        self.sampler = Sampler(temperature=self.temperature, seed=self.seed)
        again = max(self.temperature, AGAIN_AT)
        self._again = Sampler(temperature=again, seed=self.seed)

    def thought(self, token_ids: Sequence[int], on_text: OnText | None = None) -> Slot:
        """The thought that follows the transcript.

        `on_text` gets the text piece by piece while it is written. ContextFullError if
        there is no room.
        """
        budget = self._budget(len(token_ids), THOUGHT_CEILING, self._thought)
        return self._slot(token_ids, self._thought, self.sampler, budget, on_text)

    def call(self, token_ids: Sequence[int], on_text: OnText | None = None) -> Slot:
        """The call that follows the transcript.

        Without `constrain` it is free text to the end of the line, stripped; where it
        may be tried again, `on_text` gets it whole, at the end. ContextFullError if the
        context, not the ceiling, cuts the call short: half a call is none, and what a
        grammar writes to squeeze it in is no decision of the model's.
        """
        rules = self._grammar
        budget = self._budget(len(token_ids), CALL_CEILING, rules)
        if self.constrain or self.attempts == 1:
            slot = self._slot(token_ids, rules, self.sampler, budget, on_text)
        else:
            slot = self._tried(token_ids, budget)
            (on_text or unheard)(slot.text)
        cut = slot.forced if self.constrain else len(slot.token_ids) == budget
        if cut and budget < CALL_CEILING:
            raise _full(len(token_ids), self.n_ctx)
        self.calls += 1
        self.parsed += parses(slot.text)
        return slot

    def _tried(self, token_ids: Sequence[int], budget: int) -> Slot:
        """The first reply that parses, or the last; it cost what all of them cost."""
        replies: list[Slot] = []
        while len(replies) < self.attempts:
            sampler = self._again if replies else self.sampler
            reply = self._slot(token_ids, self._grammar, sampler, budget, None)
            replies.append(reply)
            if parses(reply.text):
                break
        return replace(
            replies[-1],
            tokens=total([reply.tokens for reply in replies]),
            forwarded=total([reply.forwarded for reply in replies]),
            reused=total([reply.reused for reply in replies]),
            attempts=len(replies),
        )

    def _slot(
        self,
        token_ids: Sequence[int],
        rules: Grammar,
        sampler: Sampler,
        budget: int,
        on_text: OnText | None,
    ) -> Slot:
        """One slot under these rules, in at most `budget` tokens."""
        free = isinstance(rules, OneLine)
        before = self.session.forwarded, self.session.reused
        with one_blas_thread():
            logits = self.session.feed(token_ids)  # (V,)
            chosen = choose_tokens(self.session, logits, sampler, budget, rules)
            choices, text = self._collected(chosen, on_text or unheard)
        legal = [] if free else [choice.legal for choice in choices if choice.legal]
        mass = [] if free else [choice.mass_kept or 0.0 for choice in choices]
        self.tokens += len(choices)
        return Slot(
            token_ids=tuple(choice.token_id for choice in choices),
            text=text.strip(),
            tokens=len(choices),
            constrained=not free,
            legal_min=min(legal, default=None),
            mass_kept=sum(mass) / len(mass) if mass else None,
            forced=any(choice.forced for choice in choices),
            forwarded=self.session.forwarded - before[0],
            reused=self.session.reused - before[1],
            choices=tuple(choices) if self.keep_choices else (),
        )

    def _budget(self, length: int, ceiling: int, rules: Grammar) -> int:
        """How many tokens a slot may have after `length` positions."""
        room = self.n_ctx - length
        short = room < ceiling and not can_finish(rules, rules.start(), room)
        if room < 1 or short:
            raise _full(length, self.n_ctx)
        return min(ceiling, room)

    def _collected(
        self, chosen: Iterable[Choice], say: OnText
    ) -> tuple[list[Choice], str]:
        """The choices up to a line break, which is not kept, and their text."""
        choices: list[Choice] = []
        stream = TextStream(self.tokenizer)
        pieces = []
        for choice in chosen:
            if choice.token_id in self._thought.breaks:
                break
            choices.append(choice)
            pieces.append(stream.push(choice.token_id))
            say(pieces[-1])
        pieces.append(stream.flush())
        say(pieces[-1])
        return choices, "".join(pieces)

    def _compiled(self) -> Grammar:
        """The grammar of the tools; the last few registries' are remembered."""
        key = json.dumps(self.tools.schema())
        if key not in self._grammars:
            if len(self._grammars) >= GRAMMARS_KEPT:
                del self._grammars[next(iter(self._grammars))]
            assert self._vocabulary is not None, "a constrained backend has made it"
            rules = calls.rules_of(self.tools)
            self._grammars[key] = grammar.TokenGrammar(rules, self._vocabulary)
        return self._grammars[key]


def _full(length: int, n_ctx: int) -> ContextFullError:
    """The error for a transcript that leaves too little room for a reply."""
    taken = f"{length} of {n_ctx} positions are taken"
    return ContextFullError(f"no room for the reply: {taken}; try fewer, shorter steps")
