"""Numbers of the metrics store for pages: a few queries for all rows at once, which hold no page up for long."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from django.utils.translation import gettext_noop

from controlplane.telemetry import query
from controlplane.telemetry.shared_reads import SharedReads

T = TypeVar("T")
WAIT_SECONDS = 1.0
# What was measured before this is no answer to "how is it now".
FRESH_SECONDS = 60
LATE = gettext_noop("the metrics store takes long to answer")
# Two, so that one question that hangs does not make all others wait.
_threads = ThreadPoolExecutor(2, "web-measured")


@dataclass(frozen=True)
class Question:
    """PromQL whose result has one sample for each value of the labels `by`."""

    promql: str
    by: tuple[str, ...]


@dataclass(frozen=True)
class Numbers:
    """What was found, by the question's name and the values of its labels. `missing`: why there is nothing at all."""

    values: Mapping[str, Mapping[tuple[str, ...], float]] = field(default_factory=dict)
    missing: str = ""

    def of(self, name: str, *owner: str) -> float | None:
        return self.all(name).get(owner)

    def all(self, name: str) -> Mapping[tuple[str, ...], float]:
        return self.values.get(name, {})


def fresh(metric: str) -> str:
    """A gauge's series that were told within the last minute and have not ended."""
    # The first part knows of ends, the second of age alone: a process that was killed ends no series.
    return f"({metric} and last_over_time({metric}[{FRESH_SECONDS}s]))"


def in_last_hour(counter: str, *by: str) -> str:
    """How much a counter grew, by these labels."""
    return f"sum by ({', '.join(by)}) (increase({counter}[1h]))"


def ask(questions: Mapping[str, Question], at_ms: int) -> Numbers:
    """All questions about one moment (Unix time in ms). Raises QueryError."""
    shared, values = SharedReads(), {}
    for name, question in questions.items():
        samples = query.instant(question.promql, at_ms, shared=shared)
        values[name] = {
            tuple(sample.labels.get(label, "") for label in question.by): sample.value
            for sample in samples
            # NaN is no value, as of a quantile over nothing.
            if math.isfinite(sample.value)
        }
    return Numbers(values)


def soon(questions: Mapping[str, Question], wait_seconds: float = WAIT_SECONDS) -> Numbers:
    """As `ask` about now, for questions of one page alone; why there is nothing where that takes too long or fails."""
    answer = _threads.submit(ask, questions, time.time_ns() // 1_000_000)
    if answer not in wait([answer], wait_seconds).done:
        answer.cancel()
        return Numbers(missing=LATE)
    try:
        return answer.result()
    except query.QueryError as error:
        return Numbers(missing=str(error))


class Latest(Generic[T]):
    """What `read` finds at a moment (Unix time in ms), in a thread of its own: a store that hangs takes up no more.

    `missing` makes of a reason what stands for nothing found.
    """

    def __init__(self, name: str, read: Callable[[int], T], missing: Callable[[str], T]) -> None:
        self._read, self._missing = read, missing
        self._thread = ThreadPoolExecutor(1, f"web-{name}")
        # The answer that is awaited, and the moment that it tells of.
        self._asked: tuple[Future[T], float] | None = None

    def get(self) -> T:
        """The values now, or why there are none. Never raises for the store."""
        asked, now = self._asked, time.time()
        # An answer that came when no page looked any more tells of then.
        if asked is None or (asked[0].done() and now - asked[1] > FRESH_SECONDS):
            asked = self._asked = (self._thread.submit(self._read, int(now * 1000)), now)
        answer, _at = asked
        if answer not in wait([answer], WAIT_SECONDS).done:
            # The next page looks at the same answer.
            return self._missing(LATE)
        self._asked = None
        try:
            return answer.result()
        except query.QueryError as error:
            return self._missing(str(error))


class Board(Latest[Numbers]):
    """The questions of one page."""

    def __init__(self, name: str, questions: Mapping[str, Question]) -> None:
        self.questions = questions
        super().__init__(name, lambda at_ms: ask(questions, at_ms), lambda why: Numbers(missing=why))
