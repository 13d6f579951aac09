"""What all that a target sends has in common: which failures there are, how long to wait, what the log hears."""

from __future__ import annotations

import logging

import aiohttp

from wire.control_api import TargetRefused, TargetUnavailable
from wire.pace import Pace

log = logging.getLogger("headworks.push")

FAILURES = (TargetRefused, aiohttp.ClientError, OSError)
TOO_LARGE = 413
_BODY_REFUSED_STATUSES = (400, TOO_LARGE, 415, 422)
_BODY_REFUSED_CODES = ("foreign_node",)


def refuses_body(refusal: TargetRefused) -> bool:
    """Whether it refuses a body, not its sender: the same body would be refused again."""
    return refusal.status in _BODY_REFUSED_STATUSES or refusal.code in _BODY_REFUSED_CODES


def retry_delay_seconds(pace: Pace, attempt: int, error: Exception) -> float:
    """Beyond what the answer asks for, a random time, so that not all targets come at once."""
    refused = isinstance(error, TargetRefused)
    cap_seconds = pace.refused_cap_seconds if refused else pace.retry_cap_seconds
    asked_seconds = error.retry_after_seconds if isinstance(error, TargetUnavailable) else 0
    return asked_seconds + pace.delay_seconds(attempt, cap_seconds)


class Told:
    """What the log was told of `what`: a change of state once, not every try."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._trouble: str | None = None

    def trouble(self, said: str, same: str | None = None) -> None:
        """`same` stands for messages that differ in numbers alone."""
        if self._trouble != (same or said):
            self._trouble = same or said
            log.warning("%s are %s", self._what, said)

    def well(self) -> None:
        if self._trouble is not None:
            self._trouble = None
            log.info("%s are taken again", self._what)
