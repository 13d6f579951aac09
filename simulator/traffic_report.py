"""What a traffic generator saw, per tenant: counts, refusals by reason, latencies. No I/O."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from msgspec import Struct

# Enough for a p95 within about a percentile, and the memory of a long run stays flat.
RESERVOIR_SAMPLES = 10_000


class TenantReport(Struct, frozen=True):
    """One tenant's row. Quantiles are absent (None) while nothing was measured.

    `statuses` counts HTTP codes, and where the client saw no whole answer `cancelled` (it left), `timeout`,
    `connection_error` and `unfinished` (the run ended first). `refusal_reasons` counts the error codes in bodies
    and in streams. `dropped` arrivals found the generator at its own bound and were never sent. TPOT is
    (last - first token) / (output tokens - 1).
    """

    requests: int
    dropped: int
    statuses: dict[str, int]
    refusal_reasons: dict[str, int]
    prompt_tokens: int
    completion_tokens: int
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    tpot_p50_ms: float | None
    tpot_p95_ms: float | None


class Report(Struct, frozen=True):
    """`--report`: the whole run."""

    url: str
    seed: int
    seconds: float
    tenants: dict[str, TenantReport]


class Reservoir:
    """A uniform sample of a stream of numbers, of bounded size (Vitter's algorithm R)."""

    def __init__(self, seed: str) -> None:
        self._rng = random.Random(seed)
        self._seen = 0
        self._values: list[float] = []

    def add(self, value: float) -> None:
        self._seen += 1
        if len(self._values) < RESERVOIR_SAMPLES:
            self._values.append(value)
        elif (place := self._rng.randrange(self._seen)) < RESERVOIR_SAMPLES:
            self._values[place] = value

    def quantile(self, share: float) -> float | None:
        """The smallest value that at least `share` of the sample does not exceed (nearest rank)."""
        if not self._values:
            return None
        ordered = sorted(self._values)
        return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


@dataclass
class TenantTally:
    """Counts one tenant's requests as they end. Latencies in seconds."""

    name: str
    requests: int = 0
    dropped: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    refusal_reasons: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __post_init__(self) -> None:
        self._ttft, self._tpot = Reservoir(f"{self.name}:ttft"), Reservoir(f"{self.name}:tpot")

    def first_token(self, ttft_seconds: float) -> None:
        self._ttft.add(ttft_seconds)

    def answered(self, prompt_tokens: int, completion_tokens: int) -> None:
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens

    def streamed(self, decode_seconds: float, completion_tokens: int) -> None:
        """A stream ended; `decode_seconds` lie between its first and last token."""
        if completion_tokens > 1:
            self._tpot.add(decode_seconds / (completion_tokens - 1))

    def report(self) -> TenantReport:
        return TenantReport(
            requests=self.requests,
            dropped=self.dropped,
            statuses=dict(sorted(self.statuses.items())),
            refusal_reasons=dict(sorted(self.refusal_reasons.items())),
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            ttft_p50_ms=_milliseconds(self._ttft.quantile(0.5)),
            ttft_p95_ms=_milliseconds(self._ttft.quantile(0.95)),
            tpot_p50_ms=_milliseconds(self._tpot.quantile(0.5)),
            tpot_p95_ms=_milliseconds(self._tpot.quantile(0.95)),
        )

    def summary(self) -> str:
        """This tenant's part of a summary line."""
        row = self.report()
        counts = {**row.statuses, **row.refusal_reasons} | ({"dropped": row.dropped} if row.dropped else {})
        parts = [f"{self.name}: {row.requests} sent", *(f"{name}={count}" for name, count in counts.items())]
        if row.ttft_p50_ms is not None:
            parts.append(f"ttft {row.ttft_p50_ms:.0f}/{row.ttft_p95_ms:.0f} ms")
        return " ".join(parts)


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
