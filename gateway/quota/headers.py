"""What answers say of limits: the x-ratelimit headers and Retry-After."""

from __future__ import annotations

import math
import random

from policy.bucket import Bucket

Header = tuple[bytes, bytes]
# Spreading clients over a fifth of a day's wait would cost them hours.
_JITTER_MAX_SECONDS = 60.0


def ratelimit_headers(requests: Bucket | None, tokens: Bucket | None, now_ms: int) -> list[Header]:
    """None for a limit that is not set."""
    headers: list[Header] = []
    for unit, bucket in ((b"requests", requests), (b"tokens", tokens)):
        if bucket:
            headers += (
                (b"x-ratelimit-limit-" + unit, b"%d" % bucket.capacity),
                (b"x-ratelimit-remaining-" + unit, b"%d" % bucket.available(now_ms)),
                (b"x-ratelimit-reset-" + unit, duration(bucket.full_in_ms(now_ms)).encode()),
            )
    return headers


def duration(milliseconds: int) -> str:
    """A duration as OpenAI writes it: `850ms`, `12s`, `6m0s`, `1h0m5s`; seconds are rounded up."""
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    seconds = -(-milliseconds // 1000)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if seconds >= 60 else "") + f"{seconds % 60}s"


def retry_after(seconds: float) -> int:
    """Whole seconds for Retry-After, never below the wait and at least 1.

    Moved up by at most 20 % of the wait, and a minute, at random, so that clients do not come back together. Only
    where no whole second lies within those 20 % is the wait rounded up beyond them.
    """
    spread = min(0.2 * seconds, _JITTER_MAX_SECONDS)
    jittered = seconds + spread * random.random()  # noqa: S311 - spreads load, guards nothing
    return max(1, math.ceil(seconds), int(jittered))
