"""How long short requests of a pool wait for a first token beside what reading them takes, and what a cut would gain.

All wait alike in one queue, so that what longer prompts take more is reading. Source: seed 1, section 5; for the wait
behind others, E[X²] ÷ 2E[X], policy/sizes.py.
"""

from __future__ import annotations

from typing import NamedTuple

from controlplane.diagnosis.detector import Readings
from controlplane.diagnosis.detectors import promql

_SIZED = "headworks_gateway_sized"
# As gateways have them, from the shortest on.
_EDGES = (256, 1024, 4096, 16_384)
SIZES = (*(f"under_{edge}" for edge in _EDGES), "larger")
# Of each kind: a mean of fewer is chance.
_REQUESTS_MIN = 10.0
# Long requests make most of the work, or others are in front.
WORK_SHARE = 0.5
# Short requests take at least five times as long until their first token as they would by themselves.
FACTOR = 5.0
# Apart, all would wait two fifths less on average: with less to gain nobody is held up by another's length. Where half
# of the requests are long a cut can gain no more than half.
_WAIT_RATIO = 0.6
BEHIND_QUERIES = {
    "sized_requests": promql.counted(f"{_SIZED}_requests_total", "pool", "size"),
    "sized_tokens": promql.counted(f"{_SIZED}_prompt_tokens_total", "pool", "size"),
    "sized_ttft": promql.counted(f"{_SIZED}_ttft_seconds_total", "pool", "size"),
}


class _Sum(NamedTuple):
    requests: float = 0.0
    tokens: float = 0.0
    seconds: float = 0.0

    def plus(self, other: _Sum) -> _Sum:
        return _Sum(*(a + b for a, b in zip(self, other, strict=True)))


class Behind(NamedTuple):
    """`edge`: short prompts have fewer tokens. `alone_seconds`: what they would take with nobody before them.

    `long_tokens`: the mean of long prompts. `wait_ratio`: the mean wait behind others, cut there, by that uncut.
    """

    edge: int
    short_seconds: float
    alone_seconds: float
    long_tokens: float
    long_share: float
    long_work: float
    wait_ratio: float


def behind(readings: Readings) -> dict[str, Behind]:
    """Pools in which short requests wait for many times as long as they take, and a cut by size would help."""
    pools = {pool for pool, _ in readings.by("sized_requests", "pool", "size")}
    seen = {pool: _worst_edge(_by_size(pool, readings)) for pool in pools}
    return {
        pool: each
        for pool, each in seen.items()
        if each is not None and each.short_seconds >= FACTOR * each.alone_seconds and each.wait_ratio <= _WAIT_RATIO
    }


def _by_size(pool: str, readings: Readings) -> list[_Sum]:
    kinds = [readings.by(f"sized_{kind}", "pool", "size") for kind in ("requests", "tokens", "ttft")]
    return [_Sum(*(kind.get((pool, size), 0.0) for kind in kinds)) for size in SIZES]


def _worst_edge(sums: list[_Sum]) -> Behind | None:
    """Of all edges with enough on both sides the one at which a cut would gain most."""
    found = [seen for at in range(1, len(sums)) if (seen := _at_edge(sums, at)) is not None]
    return min(found, key=lambda seen: (seen.wait_ratio, seen.edge), default=None)


def _at_edge(sums: list[_Sum], at: int) -> Behind | None:
    """Those before the edge beside the others: by what these take more, short ones would be read in `alone_seconds`."""
    short, long = _Sum(), _Sum()
    for each in sums[:at]:
        short = short.plus(each)
    for each in sums[at:]:
        long = long.plus(each)
    if min(short.requests, long.requests) < _REQUESTS_MIN or long.tokens < WORK_SHARE * (long.tokens + short.tokens):
        return None
    short_tokens, long_tokens = short.tokens / short.requests, long.tokens / long.requests
    short_seconds, long_seconds = short.seconds / short.requests, long.seconds / long.requests
    if short_tokens < 1 or long_tokens <= short_tokens or long_seconds <= short_seconds:
        return None
    token_seconds = (long_seconds - short_seconds) / (long_tokens - short_tokens)
    requests, tokens = short.requests + long.requests, short.tokens + long.tokens
    squares = short_tokens * short.tokens + long_tokens * long.tokens
    return Behind(
        edge=_EDGES[at - 1],
        short_seconds=short_seconds,
        alone_seconds=short_tokens * token_seconds,
        long_tokens=long_tokens,
        long_share=long.requests / requests,
        long_work=long.tokens / tokens,
        # Each class waits for what is left of its own alone: its mean, where all of it are alike.
        wait_ratio=tokens / requests / (squares / tokens),
    )
