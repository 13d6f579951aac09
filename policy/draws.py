"""Draws that share traffic out evenly, also of few requests: a canary of 2.5 % gets its two of eighty, not none or six.

Source: the additive recurrence with the golden ratio, whose points lie more evenly than those of any other step; by the
three-gap theorem the time between two that fall in a stretch of [0, 1) is one of three.
"""

from __future__ import annotations

from collections.abc import Callable

_STEP = (5**0.5 - 1) / 2


class EvenDraws:
    """A sequence of draws in [0, 1) a name, each from a beginning of its own. Not thread-safe.

    What goes by names that alternate is shared out evenly for each of them. `beginning` gives where a new one begins,
    in [0, 1): at random, so that many gateways do not send to the same pool at once.
    """

    def __init__(self, beginning: Callable[[], float]) -> None:
        self._beginning = beginning
        self._last: dict[str, float] = {}

    def draw(self, name: str) -> float:
        """The next of a name. There are as many names as the configuration has."""
        last = self._last[name] if name in self._last else self._beginning()
        self._last[name] = drawn = (last + _STEP) % 1
        return drawn
