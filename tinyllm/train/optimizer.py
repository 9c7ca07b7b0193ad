"""AdamW with gradient clipping, a warm-up and a cosine.

`AdamW(weights).step(grads, lr)` changes the weights in place; `learning_rate` gives the
length of a step. Source: Loshchilov and Hutter 2019, algorithm 2.

Before: train.backward. Next: train.loop.
"""

from __future__ import annotations

import math

import numpy as np

from tinyllm.train.backward import Weights


def learning_rate(step: int, steps: int, peak: float, warmup: int = 100) -> float:
    """Return the rate of `step`: linear to `peak`, then half a cosine to 5 % of it."""
    # at first the moments know little, so the steps are short
    if step < warmup:
        return peak * (step + 1) / warmup
    done = (step - warmup) / max(1, steps - warmup)
    return peak * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(1.0, done))))


def clip(grads: Weights, limit: float = 1.0) -> float:
    """Shrink all gradients in place to a joint norm of `limit`; return the old norm."""
    norm = math.sqrt(sum(float(np.vdot(g, g)) for g in grads.values()))
    if norm > limit:
        for g in grads.values():
            g *= limit / norm
    return norm


class AdamW:
    """The moments of each weight's gradient, first and second, and the step count.

    Matrices decay, norm weights (one axis) do not.
    """

    def __init__(
        self,
        weights: Weights,
        betas: tuple[float, float] = (0.9, 0.95),
        decay: float = 0.1,
        eps: float = 1e-8,
    ) -> None:
        self.weights, self.betas, self.decay, self.eps = weights, betas, decay, eps
        self.steps = 0
        self.m = {name: np.zeros_like(w) for name, w in weights.items()}
        self.v = {name: np.zeros_like(w) for name, w in weights.items()}

    def step(self, grads: Weights, lr: float) -> None:
        """Move every weight by about `lr` against its gradient."""
        self.steps += 1
        b1, b2 = self.betas
        # the moments begin at 0, so early means are too small by these factors
        fix1, fix2 = 1 - b1**self.steps, 1 - b2**self.steps
        for name, g in grads.items():
            m, v, w = self.m[name], self.v[name], self.weights[name]
            m += (1 - b1) * (g - m)
            v += (1 - b2) * (g * g - v)
            if w.ndim > 1:  # decay apart from the gradient: the W of AdamW
                w *= 1 - lr * self.decay
            w -= (lr / fix1) * m / (np.sqrt(v / fix2) + self.eps)
