"""How a write wakes whoever publishes. The hub listens here, so that the step need not know it."""

from __future__ import annotations

from collections.abc import Callable

_listeners: list[Callable[[], None]] = []


def listen(listener: Callable[[], None]) -> None:
    """Call `listener` after each commit of a write in this process; it must be quick and not raise."""
    if listener not in _listeners:
        _listeners.append(listener)


def written() -> None:
    for listener in _listeners:
        listener()
