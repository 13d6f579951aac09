"""What an attempt at a delivery means, and what follows from it. Pure: time and chance are passed in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from http import HTTPStatus
from typing import NamedTuple

RETRY_BASE = timedelta(seconds=1)
# A receiver may ask for a longer pause than we would make, but not for one that outlasts the night.
RETRY_AFTER_MAX = timedelta(hours=1)


class Reason(StrEnum):
    """How an attempt ended."""

    TAKEN = "taken"
    # Passing: the same may succeed in a moment.
    TIMED_OUT = "timed_out"
    UNREACHABLE = "unreachable"
    BUSY = "busy"
    SERVER_ERROR = "server_error"
    FAILED_HERE = "failed_here"
    # Lasting: somebody has to change the receiver or the URL first.
    REJECTED = "rejected"
    REDIRECTED = "redirected"
    ADDRESS_REFUSED = "address_refused"
    TLS = "tls"
    SECRET_UNREADABLE = "secret_unreadable"  # noqa: S105


LASTING = frozenset({Reason.REJECTED, Reason.REDIRECTED, Reason.ADDRESS_REFUSED, Reason.TLS, Reason.SECRET_UNREADABLE})
_BUSY = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}


class Outcome(NamedTuple):
    """One attempt's end, in words for the delivery's row. `retry_after`: the pause that the receiver asked for."""

    reason: Reason
    text: str = ""
    retry_after: timedelta | None = None

    @property
    def error(self) -> str:
        return "" if self.reason is Reason.TAKEN else f"{self.reason}: {self.text}"


def judge(status: int, retry_after: str | None, now: datetime) -> Outcome:
    """The outcome that an HTTP status is."""
    said = f"answered {status}{_phrase(status)}"
    if 200 <= status < 300:
        return Outcome(Reason.TAKEN, said)
    if status in _BUSY:
        return Outcome(Reason.BUSY, said, _pause(retry_after, now))
    if 300 <= status < 400:
        return Outcome(Reason.REDIRECTED, f"{said}; redirects are not followed, so give the URL that it leads to")
    return Outcome(Reason.REJECTED if status < 500 else Reason.SERVER_ERROR, said)


def _phrase(status: int) -> str:
    try:
        return f" {HTTPStatus(status).phrase}"
    except ValueError:
        return ""


def _pause(header: str | None, now: datetime) -> timedelta | None:
    """`Retry-After` (RFC 9110, 10.2.3): seconds or a date; None where it is neither."""
    text = (header or "").strip()
    if text.isascii() and text.isdecimal():
        return min(timedelta(seconds=int(text[:9])), RETRY_AFTER_MAX)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return min(max(moment - now, timedelta(0)), RETRY_AFTER_MAX)


class Limits(NamedTuple):
    """The longest pause between attempts, and for how long it is tried at all."""

    retry_max: timedelta
    give_up: timedelta


def next_attempt(
    outcome: Outcome, attempts: int, created_at: datetime, now: datetime, limits: Limits, draw: float
) -> datetime | None:
    """When to try again after attempt number `attempts` failed; None: give up.

    Full jitter (AWS Architecture Blog, "Exponential Backoff and Jitter"): anywhere between now and a bound that doubles
    from RETRY_BASE; `draw` is from [0, 1). What lasts until a person acts starts at the longest bound: it is
    not given up at once, for people do act, and a proxy answers 404 while what is behind it restarts.
    """
    bound = limits.retry_max
    if outcome.reason not in LASTING:
        # Beyond this exponent the bound is reached whatever the setting, and the number stays small.
        bound = min(RETRY_BASE * 2 ** min(attempts - 1, 20), limits.retry_max)
    due_at = now + max(bound * draw, outcome.retry_after or timedelta(0))
    return due_at if due_at < created_at + limits.give_up else None
