"""Engines with one fault, put in on purpose, on the weights of a real model.

A verifier that was never seen to fail proves nothing. `shifted` turns positions by a
wrong angle, `slipped` stores one slot off, `fused` fails half-way through a pass. This
is the only module of `verify` that reaches behind an engine: a fault has to be inside.

Before: verify.equivalence. Next: verify.warm_cold.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from tinyllm.decode.session import Session
from tinyllm.engine import Array
from tinyllm.model.cache import KVCache
from tinyllm.model.transformer import Model
from tinyllm.numpy_engine import NumpyEngine


class InjectedError(Exception):
    """The failure of a `fused` engine, which nothing else raises or catches."""


class Shifted(Model):
    """A model whose RoPE counts wrongly: in a prefill, in a decode step, or in both."""

    prefill = 0
    decode = 0

    def rotation(self, start: int, n: int) -> tuple[Array, Array]:
        """Return the cosines and sines of positions that are shifted."""
        shift = self.decode if n == 1 else self.prefill
        last = len(self.cos) - n  # the tables end with the context
        return super().rotation(min(max(0, start + shift), last), n)


class Fused(Model):
    """A model that fails once, after `fuse` more layers have been through attention."""

    fuse: int | None = None  # None: it does not fail

    def _attend(self, *arguments: Any) -> Array:
        """Return what attention adds to the state, or raise InjectedError."""
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                self.fuse = None
                raise InjectedError
        return super()._attend(*arguments)


class SlippedCache(KVCache):
    """A cache that stores a single position one slot too far, and reads as always."""

    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        """Return all keys and values up to a slot that has not been written."""
        if k.ndim == 3:
            return super().append(layer, k, v)
        self.k[layer][:, self.length + 1] = k
        self.v[layer][:, self.length + 1] = v
        stop = self.length + 1
        return self.k[layer][:, :stop], self.v[layer][:, :stop]  # (K, S, E)


def shifted(lm: NumpyEngine, prefill: int = 0, decode: int = 0) -> NumpyEngine:
    """Return an engine with the same weights whose positions are off by so much."""
    return _with(lm, Shifted, prefill=prefill, decode=decode)


def slipped(lm: NumpyEngine) -> NumpyEngine:
    """Return an engine on the same model whose sessions have a `SlippedCache`."""
    other = copy(lm)
    vars(other)["session"] = lambda: Session(lm.model, SlippedCache(lm.config))
    return other


def fused(lm: NumpyEngine) -> NumpyEngine:
    """Return an engine with the same weights, which `light` makes fail once."""
    return _with(lm, Fused)


def light(lm: NumpyEngine, passes: int | None) -> None:
    """Make a `fused` engine fail half-way through a pass, after `passes` whole ones.

    None takes that back.
    """
    assert isinstance(lm.model, Fused), "fused() returns such an engine"
    n = lm.config.n_layers
    lm.model.fuse = None if passes is None else passes * n + n // 2


def _with(lm: NumpyEngine, kind: type[Model], **attributes: int) -> NumpyEngine:
    """Return a copy of an engine, sessions of its own kind included, on such a model.

    The model shares the weights of the engine's.
    """
    other, model = copy(lm), kind.__new__(kind)
    vars(model).update(vars(lm.model), **attributes)
    other.model = model
    return other
