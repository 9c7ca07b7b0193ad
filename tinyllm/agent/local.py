"""The backend that runs here: it steps in between the logits and the sampling.

Public: `LocalBackend`, and `OneLine`, the mask of free text.

A thought is one free line; a call is written under a grammar compiled from the tools,
so that it always parses. A grammar cannot give more: which tool and which arguments is
the model's own doing.

Before: agent.backend. Next: agent.trace.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tinyllm import grammar
from tinyllm.agent.backend import OnText, Slot, check_flag, parses, total
from tinyllm.agent.protocol import MAX_CALL, MAX_THOUGHT
from tinyllm.agent.tools import Registry
from tinyllm.decode.generate import Choice, Grammar, can_finish, choose_tokens
from tinyllm.decode.sampling import Sampler
from tinyllm.decode.stop import StopStrings
from tinyllm.decode.threads import one_blas_thread
from tinyllm.errors import ContextFullError, GrammarError, UsageError, check_int
from tinyllm.grammar import calls
from tinyllm.progress import ignore
from tinyllm.text.stream import TextStream

if TYPE_CHECKING:
    from tinyllm.engine import Engine, Tokenizer

RETRY_TEMPERATURE = 0.8  # at least this: at 0 a second reply would be the first again
GRAMMARS_KEPT = 8  # a few kB of masks each


class OneLine:
    """A mask in the shape of a grammar: one line of free text, ended by a line break.

    State 0 is the line, state 1 its end. A token with a line break inside is illegal,
    since text would follow the break; so are special ids, except that eos may end the
    line (it never enters the transcript).
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        forbidden = set(tokenizer.special_ids) - set(tokenizer.eos_ids)
        contents = [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
        legal = [
            i not in forbidden and (b"\n" not in content or content == b"\n")
            for i, content in enumerate(contents)
        ]
        self.breaks = frozenset(i for i, c in enumerate(contents) if c == b"\n")
        self._line = np.array(legal, dtype=bool)  # (V,)
        self._end = np.zeros_like(self._line)  # (V,)
        # callers get these very arrays, so nobody may change them
        self._line.flags.writeable = self._end.flags.writeable = False

    def start(self) -> int:
        """Return the state before the first token."""
        return 0

    def mask(self, state: int) -> NDArray[np.bool_]:
        """Return which tokens are legal: bool (V,), read-only."""
        return self._end if state else self._line

    def advance(self, state: int, token_id: int) -> int:
        """Return the state after a legal token; GrammarError if it is illegal."""
        if not self.mask(state)[token_id]:
            raise GrammarError(f"token {token_id} is not allowed in a free line")
        return int(token_id in self.breaks)

    def is_done(self, state: int) -> bool:
        """Return whether the line has ended, after which nothing is legal."""
        return state == 1

    def finish(self, state: int) -> tuple[int, ...]:
        """Return the shortest completion: none, since a line may stop anywhere."""
        return ()


class LocalBackend:
    """Thoughts and calls from a model on this machine.

    The session persists: of a transcript only the ids by which it grew are forwarded.
    A free call (`constrain=False`) that does not parse is sampled again, up to
    `attempts` replies in all, at temperature 0.8 or above. A thought ends before the
    first of the strings in `stop_thought`, and has at most `max_thought` tokens; a call
    has at most `max_call`. `calls`, `parsed`, `thought_tokens`, `call_tokens` and
    `tokens`, their sum, count over the life of the backend.
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
        max_thought: int = MAX_THOUGHT,
        max_call: int = MAX_CALL,
        stop_thought: Sequence[str] = (),
    ) -> None:
        self.lm = lm
        self.tokenizer = lm.tokenizer
        self.session = lm.session()
        self.n_ctx = self.session.n_ctx
        self.constrain = check_flag("constrain", constrain)
        self.keep_choices = keep_choices
        self.attempts = check_int("attempts", attempts, 1)
        self.max_thought = check_int("max_thought", max_thought, 1)
        self.max_call = check_int("max_call", max_call, 1)
        self.stop_thought = StopStrings(stop_thought).stops  # checks them too
        self.calls = self.parsed = self.thought_tokens = self.call_tokens = 0
        self.temperature, self.seed = temperature, seed
        self._grammars: dict[str, Grammar] = {}  # by the schema of their registry
        # the trie of all tokens is built once, and every grammar shares it
        self._vocabulary = grammar.Vocabulary(self.tokenizer) if constrain else None
        self._line = OneLine(self.tokenizer)
        self.set_tools(tools)
        self.reset()

    def set_tools(self, tools: Registry | None) -> None:
        """Swap the tools; model, session and grammars made before are kept.

        UsageError if calls are constrained and there are no tools, or if none of their
        calls is as short as `max_call`.
        """
        if self.constrain and not tools:
            raise UsageError("a constrained call needs tools, or say constrain=False")
        self.tools = tools or Registry([])
        self._grammar = self._compiled() if self.constrain else self._line
        if not can_finish(self._grammar, self._grammar.start(), self.max_call):
            raise UsageError(
                f"max_call is {self.max_call} tokens, but each call of these tools "
                "takes more: try more"
            )

    @property
    def tokens(self) -> int:
        """Return the number of tokens of all thoughts and calls so far."""
        return self.thought_tokens + self.call_tokens

    def reset(self) -> None:
        """Start afresh: the session is empty and the samplers are back at `seed`."""
        self.session.reset()
        self.sampler = Sampler(temperature=self.temperature, seed=self.seed)
        retry = max(self.temperature, RETRY_TEMPERATURE)
        self._retry_sampler = Sampler(temperature=retry, seed=self.seed)

    def thought(self, token_ids: Sequence[int], on_text: OnText = ignore) -> Slot:
        """Return the thought that follows the transcript.

        `on_text` gets the text piece by piece while it is written. ContextFullError if
        no position is free.
        """
        line, stops = self._line, self.stop_thought
        budget = self._budget(len(token_ids), self.max_thought, line)
        slot = self._slot(token_ids, line, self.sampler, budget, on_text, stops)
        self.thought_tokens += slot.tokens or 0
        return slot

    def call(self, token_ids: Sequence[int], on_text: OnText = ignore) -> Slot:
        """Return the call that follows the transcript.

        Without `constrain` it is free text to the end of the line, stripped; where
        there may be several attempts, `on_text` gets the last one in one piece.
        ContextFullError if the context, not the token limit, cuts the call short: half
        a call is not a call, and the model did not decide what a grammar squeezes in.
        """
        rules = self._grammar
        budget = self._budget(len(token_ids), self.max_call, rules)
        if self.constrain or self.attempts == 1:
            slot = self._slot(token_ids, rules, self.sampler, budget, on_text)
        else:
            slot = self._first_that_parses(token_ids, budget)
            on_text(slot.text)  # only now is it certain which attempt counts
        self.call_tokens += slot.tokens or 0  # also of one that will not count
        # a free call that used up its budget met no line break: it is not complete
        is_cut = slot.forced if self.constrain else len(slot.token_ids) == budget
        if is_cut and budget < self.max_call:
            raise _full(len(token_ids), self.n_ctx)
        self.calls += 1
        self.parsed += parses(slot.text)
        return slot

    def _first_that_parses(self, token_ids: Sequence[int], budget: int) -> Slot:
        """Return the first reply that parses, or the last; its costs are of all."""
        replies: list[Slot] = []
        while len(replies) < self.attempts:
            sampler = self._retry_sampler if replies else self.sampler
            reply = self._slot(token_ids, self._grammar, sampler, budget, ignore)
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
        on_text: OnText,
        stops: Sequence[str] = (),
    ) -> Slot:
        """Return one slot under these rules, of at most `budget` tokens."""
        is_free = isinstance(rules, OneLine)
        before = self.session.forwarded, self.session.reused
        with one_blas_thread():  # small products lose more by threads than they gain
            # the whole transcript, of which the session forwards what is new
            logits = self.lm.prefill(self.session, token_ids)  # (V,)
            chosen = choose_tokens(
                self.lm, self.session, logits, sampler, budget, rules
            )
            choices, text = self._collected(chosen, on_text, stops)
        # a free line has a mask too, but not one that says anything about the model
        legal = [] if is_free else [choice.legal for choice in choices if choice.legal]
        mass = [] if is_free else [choice.mass_kept or 0.0 for choice in choices]
        return Slot(
            token_ids=tuple(choice.token_id for choice in choices),
            text=text.strip(),
            tokens=len(choices),
            constrained=not is_free,
            legal_min=min(legal, default=None),
            mass_kept=sum(mass) / len(mass) if mass else None,
            forced=any(choice.forced for choice in choices),
            forwarded=self.session.forwarded - before[0],
            reused=self.session.reused - before[1],
            choices=tuple(choices) if self.keep_choices else (),
        )

    def _budget(self, length: int, limit: int, rules: Grammar) -> int:
        """Return how many tokens a slot may have after `length` positions.

        ContextFullError if even the shortest legal text would not fit.
        """
        free = self.n_ctx - length
        # far from the end of the context the question need not be asked
        is_short = free < limit and not can_finish(rules, rules.start(), free)
        if free < 1 or is_short:
            raise _full(length, self.n_ctx)
        return min(limit, free)

    def _collected(
        self, chosen: Iterable[Choice], on_text: OnText, stops: Sequence[str]
    ) -> tuple[list[Choice], str]:
        """Return the choices up to a line break or a stop string, and their text.

        Line break and stop string are dropped. A token of which only a part belongs to
        a stop string goes with it: ids and text say the same.
        """
        choices: list[Choice] = []
        stream, watch = TextStream(self.tokenizer), StopStrings(stops)
        text, sure, told = "", 0, 0  # told and sure: characters of it
        ends = [(0, 0)]  # characters and choices, wherever both are complete
        for choice in chosen:
            if choice.token_id in self._line.breaks:
                break
            choices.append(choice)
            piece = stream.push(choice.token_id)
            text += piece
            sure += len(watch.push(piece))  # these come before any stop string
            if not stream.unfinished:
                ends.append((len(text), len(choices)))
            end, n = max(at for at in ends if at[0] <= sure)
            on_text(text[told:end])
            told = end
            if watch.stopped:
                return choices[:n], text[:end]
        text += stream.flush()  # what is left of an unfinished character
        on_text(text[told:])
        return choices, text

    def _compiled(self) -> Grammar:
        """Return the grammar of the tools; the last few registries' are remembered."""
        key = json.dumps(self.tools.schema())
        if key not in self._grammars:
            if len(self._grammars) >= GRAMMARS_KEPT:
                del self._grammars[next(iter(self._grammars))]
            assert self._vocabulary is not None, "a constrained backend has made it"
            rules = calls.rules_of(self.tools)
            self._grammars[key] = grammar.TokenGrammar(rules, self._vocabulary)
        return self._grammars[key]


def _full(length: int, n_ctx: int) -> ContextFullError:
    """Return the error for a transcript that leaves no room for a reply."""
    taken = f"{length} of {n_ctx} positions are taken"
    return ContextFullError(f"no room for the reply: {taken}; try fewer, shorter steps")
