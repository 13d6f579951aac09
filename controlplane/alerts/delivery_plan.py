"""What an attempt at a delivery means, and what follows from it. Pure: time and chance are passed in."""

from __future__ import annotations

from collections.abc import Sequence
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
    NOT_SET_UP = "not_set_up"
    # Final: this message will never be taken, and others may be.
    INVALID = "invalid"


LASTING = frozenset(
    {
        Reason.REJECTED,
        Reason.REDIRECTED,
        Reason.ADDRESS_REFUSED,
        Reason.TLS,
        Reason.SECRET_UNREADABLE,
        Reason.NOT_SET_UP,
    }
)
_BUSY = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}


class Outcome(NamedTuple):
    """One attempt's end, in words for the delivery's row. `retry_after`: the pause that the receiver asked for.

    `status` is the answer's, and `said` the beginning of its body; None and empty where there was no answer.
    """

    reason: Reason
    text: str = ""
    retry_after: timedelta | None = None
    status: int | None = None
    said: str = ""

    @property
    def error(self) -> str:
        return "" if self.reason is Reason.TAKEN else f"{self.reason}: {self.text}"


def judge(status: int, retry_after: str | None, now: datetime) -> Outcome:
    """The outcome that an HTTP status is."""
    text = f"answered {status}{_phrase(status)}"
    if 200 <= status < 300:
        return Outcome(Reason.TAKEN, text, status=status)
    if status in _BUSY:
        return Outcome(Reason.BUSY, text, _pause(retry_after, now), status)
    if 300 <= status < 400:
        text = f"{text}; redirects are not followed, so give the URL that it leads to"
        return Outcome(Reason.REDIRECTED, text, status=status)
    return Outcome(Reason.REJECTED if status < 500 else Reason.SERVER_ERROR, text, status=status)


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
    except (ValueError, OverflowError):
        # Overflow: digits without end where a year, or an hour, should be.
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
    if outcome.reason is Reason.INVALID:
        return None
    bound = limits.retry_max
    if outcome.reason not in LASTING:
        # Beyond this exponent the bound is reached whatever the setting, and the number stays small.
        bound = min(RETRY_BASE * 2 ** min(attempts - 1, 20), limits.retry_max)
    due_at = now + max(bound * draw, outcome.retry_after or timedelta(0))
    return due_at if due_at < created_at + limits.give_up else None


class Waiting(NamedTuple):
    """A message that has not been taken: why it was written, and what it says of the incident."""

    occasion: str
    status: str


def is_overtaken(message: Waiting, later: Sequence[Waiting], *, told: bool) -> bool:
    """Whether a message need not be sent, for what waits behind it, about the same incident to the same receiver.

    A message shows the incident as it is when it is sent, so of several that say that it fires the last is enough. None
    of them is after its end, where the receiver was `told` that it fires: else it would hear of the end alone.
    """
    if message.status == "resolved":
        return False
    if any(one.status == "resolved" for one in later):
        return told
    return message.occasion != "acknowledged" and any(
        one.status == message.status and one.occasion != "acknowledged" for one in later
    )
