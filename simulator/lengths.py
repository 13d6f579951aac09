"""Heavy-tailed lengths in tokens, of prompts and of answers.

Tests with fixed lengths hide preemption and head-of-line blocking: real input and output lengths have heavy
tails (seed 1, section 2).
"""

from __future__ import annotations

import math
import random
from typing import Annotated

from msgspec import Meta, Struct

PositiveTokens = Annotated[int, Meta(ge=1, le=10_000_000)]


class LogNormal(Struct, frozen=True, tag_field="kind", tag="lognormal", forbid_unknown_fields=True):
    """A log-normal length: half lie below `median_tokens`; `sigma` is the standard deviation of its logarithm."""

    median_tokens: PositiveTokens
    sigma: Annotated[float, Meta(ge=0, le=5)] = 1.0
    max_tokens: PositiveTokens = 32_768

    def draw(self, rng: random.Random) -> int:
        return _bounded(self.median_tokens * math.exp(self.sigma * rng.gauss(0.0, 1.0)), self.max_tokens)


class Pareto(Struct, frozen=True, tag_field="kind", tag="pareto", forbid_unknown_fields=True):
    """A Pareto length from `min_tokens` up; the smaller `alpha`, the heavier the tail (mean is infinite up to 1)."""

    min_tokens: PositiveTokens
    alpha: Annotated[float, Meta(gt=0, le=20)] = 1.5
    max_tokens: PositiveTokens = 32_768

    def draw(self, rng: random.Random) -> int:
        return _bounded(self.min_tokens * rng.paretovariate(self.alpha), self.max_tokens)


LengthDistribution = LogNormal | Pareto


def _bounded(length: float, max_tokens: int) -> int:
    return max(1, int(min(length, max_tokens)))
