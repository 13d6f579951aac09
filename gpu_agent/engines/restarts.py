"""Was an engine started again since the last look? Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from wire.engine_pages.numbers import Reading

_STARTED = "process_start_time_seconds"
# A model that Triton loads anew begins its counters anew.
_COUNTERS_OF_MODELS = frozenset({"triton"})

Counters = Mapping[tuple[str, tuple[str, str] | tuple[()]], float]


@dataclass(frozen=True)
class Run:
    """One run of an engine's process, as far as it was seen.

    `started_seconds`: Unix time, None where its page does not say. `seen_ms`: when it was seen to have started again,
    0 for the first run. `refused`: since then nobody listened there.
    """

    counters: Counters
    started_seconds: float | None
    seen_ms: int = 0
    refused: bool = False

    @property
    def started_ms(self) -> int | None:
        """When it began, as well as that is known."""
        if self.started_seconds is not None:
            return int(self.started_seconds * 1000)
        return self.seen_ms or None


def follow(before: Run | None, kind: str, numbers: Iterable[Reading], at_ms: int) -> tuple[Run, bool]:
    """The run that a look at an engine that is up belongs to, and whether it is another than `before`.

    An engine that comes up for the first time was not started again, and no more was one that merely did not answer.
    """
    now = _run(kind, list(numbers))
    if before is None:
        return now, False
    if _another(before, now):
        return replace(now, seen_ms=at_ms), True
    counters = {**before.counters, **now.counters}
    started = before.started_seconds if now.started_seconds is None else now.started_seconds
    return Run(counters, started, before.seen_ms), False


def _run(kind: str, numbers: list[Reading]) -> Run:
    started = next((reading.value for reading in numbers if reading.name == _STARTED), None)
    counters = {(name, label): value for name, label, value in numbers if name.endswith(("_total", "_count"))}
    return Run({} if kind in _COUNTERS_OF_MODELS else counters, started)


def _another(before: Run, now: Run) -> bool:
    if any(value < before.counters.get(counter, 0) for counter, value in now.counters.items()):
        return True
    if before.started_seconds is None or now.started_seconds is None:
        return before.refused
    # A process reads its own start once, so that the number stays the same to the last digit.
    return now.started_seconds != before.started_seconds
