"""When something is due that is done every interval. Pure."""

from __future__ import annotations

# More than a busy machine has a process wait.
_STOOD_STILL_SECONDS = 1.0


def next_due(due_seconds: float, now_seconds: float, interval_seconds: float) -> float:
    """The next time at which something is due every interval; times that were missed are passed over."""
    missed = max(0.0, now_seconds - due_seconds) // interval_seconds
    return due_seconds + (missed + 1) * interval_seconds


def stood_still(due_seconds: float, now_seconds: float) -> bool:
    """Whether what was due comes so late that this process did not run meanwhile: it was stopped, or its machine was.

    What it waited for may have come long ago.
    """
    return now_seconds - due_seconds > _STOOD_STILL_SECONDS
