"""How fast a pool answers, prefill and the engine's own queue included: what an answer is worth that nobody saw.

Of a whole answer that is given up before it is there no token was counted, though the engine has made some. By the time
that it ran, and by what answers of the pool took, their number is told as well as it can be.
"""

from __future__ import annotations

# The weight of one answer among those before it: the last sixty-four make up most of it.
_WEIGHT = 1 / 64


class OutputPace:
    """Running means of the output tokens of one sequence and of the milliseconds that it took."""

    def __init__(self) -> None:
        self._tokens = self._ms = 0.0

    def learn(self, output_tokens: float, took_ms: float) -> None:
        """An answer of so many tokens a sequence has ended. Without tokens, or in no time, it says nothing."""
        if output_tokens <= 0 or took_ms <= 0:
            return
        weight = _WEIGHT if self._ms else 1.0
        self._tokens += (output_tokens - self._tokens) * weight
        self._ms += (took_ms - self._ms) * weight

    def tokens_in(self, ms: float) -> int:
        """Of one sequence that has run so long; 0 where no answer was seen yet."""
        return int(ms * self._tokens / self._ms) if self._ms and ms > 0 else 0
