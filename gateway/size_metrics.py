"""How long prompts of different lengths wait for their first token, which tells short ones behind long ones."""

from __future__ import annotations

from bisect import bisect_right

from gateway.families import Families

# Prompt tokens, exclusive. The seed parts short from long at 1,024 (seed 1, section 5).
_EDGES = (256, 1024, 4096, 16_384)
SIZES = (*(f"under_{edge}" for edge in _EDGES), "larger")
_LABELS = ("pool", "size")


def size_of(prompt_tokens: int) -> str:
    return SIZES[bisect_right(_EDGES, prompt_tokens)]


class SizeMetrics:
    """Counters among `families`: the one divided by the other is a mean."""

    def __init__(self, families: Families) -> None:
        counter = families.counter
        self._requests = counter("sized_requests_total", "Streams that began, by the prompt's length.", _LABELS)
        self._tokens = counter("sized_prompt_tokens_total", "Their prompt tokens.", _LABELS)
        self._seconds = counter("sized_ttft_seconds_total", "Their times to the first token.", _LABELS)

    def began(self, pool: str, prompt_tokens: int, ttft_seconds: float) -> None:
        labels = (pool, size_of(prompt_tokens))
        self._requests.labels(*labels).inc()
        self._tokens.labels(*labels).inc(prompt_tokens)
        self._seconds.labels(*labels).inc(ttft_seconds)
