"""Steps of a check: each says what holds, how long that took, and what was seen."""

from __future__ import annotations

import time
from collections.abc import Callable

from controlplane.processes import StartFailed
from controlplane.rest_client import RestError


class NotHeld(AssertionError):
    """A step's promise was broken; the message says what was seen."""


class Steps:
    """Prints each step as it ends, with how long it took."""

    def __init__(self) -> None:
        self.count = 0

    def run(self, what: str, action: Callable[[], str | None]) -> None:
        start = time.monotonic()
        try:
            seen = action()
        # An answer of another shape than the step expects is a broken promise too.
        except Exception as error:
            said = str(error) if isinstance(error, NotHeld | StartFailed | RestError) else repr(error)
            print(f"  FAIL  {time.monotonic() - start:7.3f} s  {what}\n        {said}", flush=True)
            raise NotHeld(what) from error
        self.count += 1
        print(f"  ok    {time.monotonic() - start:7.3f} s  {what}{f': {seen}' if seen else ''}", flush=True)


def expect(holds: bool, otherwise: object) -> None:
    if not holds:
        raise NotHeld(str(otherwise))


def wait_until(
    condition: Callable[[], bool], what: str, timeout_seconds: float = 20, *, seen: Callable[[], object] | None = None
) -> None:
    """Poll until it holds; else NotHeld says what did not, and what was `seen` instead."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            instead = f"; seen: {seen()}" if seen else ""
            raise NotHeld(f"not within {timeout_seconds:.0f} s: {what}{instead}")
        time.sleep(0.05)
