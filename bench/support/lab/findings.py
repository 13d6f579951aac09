"""What the diagnosis says, as people read it over REST."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from controlplane.rest_client import Rest

_LOOK_SECONDS = 1.0


class Found(NamedTuple):
    """A finding that stands."""

    detector: str
    subject: str
    id: int


def standing(rest: Rest) -> list[Found]:
    detectors = rest.get("/diagnosis")["detectors"]
    return [
        Found(card["name"], finding["subject"], finding["id"]) for card in detectors for finding in card["findings"]
    ]


def blind(rest: Rest) -> dict[str, str]:
    """Detectors that cannot see, and why."""
    return {card["name"]: card["blind"] for card in rest.get("/diagnosis")["detectors"] if card["blind"]}


@dataclass
class Watch:
    """Looks at the diagnosis every second, and remembers when each finding was first there; not those of `before`."""

    rest: Rest
    before: set[Found] = field(default_factory=set)
    since: float = field(default_factory=time.monotonic)
    first: dict[Found, float] = field(default_factory=dict)

    def until(self, condition: Callable[[list[Found]], bool], limit_seconds: float) -> bool:
        """Whether that came to hold within the time."""
        deadline = time.monotonic() + limit_seconds
        while True:
            now = standing(self.rest)
            for found in now:
                if found not in self.before:
                    self.first.setdefault(found, time.monotonic() - self.since)
            if condition(now):
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_SECONDS)

    @property
    def seconds_to(self) -> dict[str, float]:
        """By detector, until its first finding."""
        times: dict[str, float] = {}
        for found, seconds in self.first.items():
            times[found.detector] = min(seconds, times.get(found.detector, seconds))
        return times


def finding(rest: Rest, found: Found) -> dict[str, Any]:
    answer: dict[str, Any] = rest.get(f"/diagnosis/findings/{found.id}")
    return answer
