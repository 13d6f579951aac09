"""What templates of a rule's texts ask the metric store, at the moment of its evaluation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from controlplane.alerts.template_parts import Failed, Found
from controlplane.core.reported import storable_text
from controlplane.telemetry.promql.errors import BadQuery, QueryError, TooMuch, Unanswerable, Unsupported
from controlplane.telemetry.results import Sample

# Different ones of one evaluation: the texts of many series may each ask something else.
QUERIES_MAX = 100
# All of them together: the rules after this one wait.
SECONDS_MAX = 5.0
# What is wrong with this query alone.
_OF_THE_QUERY = (BadQuery, TooMuch, Unanswerable, Unsupported)


class RuleQueries:
    """Each query once. Once the store does not answer, no more are asked. `instant` raises QueryError."""

    def __init__(self, instant: Callable[[str], Sequence[Sample]], clock: Callable[[], float] = time.monotonic) -> None:
        self._instant, self._clock, self._seconds = instant, clock, 0.0
        self._answers: dict[str, Sequence[Found] | QueryError] = {}
        self._away: QueryError | None = None

    def __call__(self, promql: str) -> Sequence[Found]:
        """What it finds. Raises Failed."""
        if promql not in self._answers:
            if len(self._answers) >= QUERIES_MAX:
                raise Failed(f"the texts of this rule ask more than {QUERIES_MAX} queries")
            if self._seconds > SECONDS_MAX:
                raise Failed(f"what the texts of this rule ask takes longer than {SECONDS_MAX:g} s")
            begun = self._clock()
            self._answers[promql] = self._away or self._asked(promql)
            self._seconds += self._clock() - begun
        answer = self._answers[promql]
        if isinstance(answer, QueryError):
            raise Failed(f"query {promql}: {answer}") from answer
        return answer

    def _asked(self, promql: str) -> Sequence[Found] | QueryError:
        try:
            samples = self._instant(promql)
        except QueryError as error:
            if not isinstance(error, _OF_THE_QUERY):
                self._away = error
            return error
        return [
            Found({name: storable_text(text) for name, text in each.labels.items()}, each.value) for each in samples
        ]
