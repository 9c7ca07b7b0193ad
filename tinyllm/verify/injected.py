"""A model or a cache with one fault put in on purpose, on the weights of a real model.

What a verifier never sees fail proves nothing. `shifted` turns positions by a wrong
angle, `SlippedCache` stores one slot off, `fused` stops half-way through a pass.
"""

from __future__ import annotations

from typing import Any

from tinyllm.model.cache import KVCache
from tinyllm.model.layers import Array
from tinyllm.model.transformer import Model


class InjectedError(Exception):
    """The failure that `Fused` was asked for, which nothing else raises or catches."""


class Shifted(Model):
    """A model whose RoPE counts wrongly: in a prefill, in a decode step, or in both."""

    prefill = 0
    decode = 0

    def rotation(self, start: int, n: int) -> tuple[Array, Array]:
        """Return the cosines and sines of other positions than those asked for."""
        shift = self.decode if n == 1 else self.prefill
        last = self.config.n_ctx - n  # the tables end with the context
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


def shifted(model: Model, prefill: int = 0, decode: int = 0) -> Shifted:
    """Return a model with the same weights whose positions are off by so much."""
    other = Shifted.__new__(Shifted)
    vars(other).update(vars(model), prefill=prefill, decode=decode)
    return other


def fused(model: Model) -> Fused:
    """Return a model with the same weights that fails when its `fuse` is set."""
    other = Fused.__new__(Fused)
    vars(other).update(vars(model), fuse=None)
    return other
