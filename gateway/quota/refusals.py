"""In what words a limit refuses a request, and when it may come again."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from gateway.refusals import Refused, asked_for
from policy.bucket import Bucket, NeverFits, Wait

# How soon a Redis that was away may be back; what a gateway cannot hold alone is worth another try then.
_TOGETHER_AGAIN_SECONDS = 5.0


def first(refusals: Iterable[Refused | None]) -> Refused | None:
    """What can never fit is named before what only has to wait."""
    found = [refusal for refusal in refusals if refusal is not None]
    return next((refusal for refusal in found if refusal.reason == "never_fits"), found[0] if found else None)


def of_day(
    tokens: int, budget: int | None, taken: int, end_ms: int, zone: str, unix_ms: int, whole: int | None
) -> Refused | None:
    """`whole`: the budget of all gateways, where this one counts alone for a while."""
    if budget is None or taken + tokens <= budget:
        return None
    asked = f"{asked_for(tokens, 'token')} (largest output included)"
    if tokens > budget:
        if whole is not None and tokens <= whole:
            return _alone("daily_token_budget", asked, tokens, budget, f"{whole} a day")
        message = f"{asked}; the limit is {budget} a day"
        return Refused("never_fits", message, param="max_tokens", numbers={"asked": tokens, "limit": budget})
    left = max(0, budget - taken)
    ends = datetime.fromtimestamp(end_ms // 1000, UTC).isoformat().replace("+00:00", "Z")
    return Refused(
        "daily_token_budget",
        f"{asked} and {left} of the day's {budget} tokens are left; the day ends at {ends} (midnight in {zone})",
        retry_after_seconds=(end_ms - unix_ms) / 1000,
        numbers={"asked": tokens, "left": left, "limit": budget},
    )


def of_parallel(sequences: int, running: int, limit: int | None, whole: int | None) -> Refused | None:
    if limit is None or running + sequences <= limit:
        return None
    asked = asked_for(sequences, "sequence")
    if sequences > limit:
        if whole is not None and sequences <= whole:
            return _alone("max_parallel_requests", asked, sequences, limit, f"{whole} that may run at once")
        message = f"{asked} and at most {limit} may run at once"
        return Refused("never_fits", message, param="n", numbers={"asked": sequences, "limit": limit})
    # When a running sequence ends is not known; a second is the shortest that the header can say.
    message = f"{asked} and {running} of {limit} parallel sequences are running"
    numbers = {"asked": sequences, "running": running, "limit": limit}
    return Refused("max_parallel_requests", message, retry_after_seconds=1, numbers=numbers)


def of_bucket(
    bucket: Bucket | None, amount: int, now_ms: int, reason: str, unit: str, whole: int | None
) -> Refused | None:
    if bucket is None:
        return None
    asked = asked_for(amount, unit)
    match bucket.obstacle(amount, now_ms):
        case None:
            return None
        case NeverFits(capacity):
            param = None
            if unit == "token":
                asked, param = f"{asked} (largest output included)", "max_tokens"
            if whole is not None and 0 < amount <= whole:
                return _alone(reason, asked, amount, capacity, f"{whole} a minute")
            message = f"{asked}; the limit is {capacity} a minute"
            return Refused("never_fits", message, param=param, numbers={"asked": amount, "limit": capacity})
        case Wait(wait_ms):
            left = bucket.available(now_ms)
            return Refused(
                reason,
                f"{asked} and {left} of {bucket.capacity} {unit}s a minute are left; it fits in {wait_ms / 1000:.1f} s",
                retry_after_seconds=wait_ms / 1000,
                numbers={"asked": amount, "left": left, "limit": bucket.capacity},
            )


def _alone(reason: str, asked: str, amount: int, share: int, whole: str) -> Refused:
    return Refused(
        reason,
        f"{asked}; while the gateways cannot count together this one has {share} of the {whole}",
        retry_after_seconds=_TOGETHER_AGAIN_SECONDS,
        numbers={"asked": amount, "limit": share},
    )
