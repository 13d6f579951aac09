"""When something is due that is done every interval. Pure."""

from __future__ import annotations


def next_due(due_seconds: float, now_seconds: float, interval_seconds: float) -> float:
    """The next time at which something is due every interval; times that were missed are passed over."""
    missed = max(0.0, now_seconds - due_seconds) // interval_seconds
    return due_seconds + (missed + 1) * interval_seconds
