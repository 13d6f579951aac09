"""What templates of a rule's texts ask the metric store, at the moment of its evaluation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controlplane.alerts.template_parts import Failed, Found, NoAnswer
from controlplane.core.reported import storable_text
from controlplane.telemetry.promql.errors import BadQuery, QueryError, TooMuch, Unanswerable, Unsupported
from controlplane.telemetry.results import Sample

# Different ones of one evaluation: the texts of many series may each ask something else.
QUERIES_MAX = 100
# All of them together: the other rules of the round have texts, too.
SECONDS_MAX = 5.0
# Those of all rules of a round together, of the time until these are due again: the rules themselves wait meanwhile.
ROUND_SHARE = 2 / 3
# What is wrong with this query alone.
_OF_THE_QUERY = (BadQuery, TooMuch, Unanswerable, Unsupported)


@dataclass
class Allowance:
    """How long texts may ask, and how long they have."""

    seconds_max: float
    spent_seconds: float = 0.0

    @property
    def is_over(self) -> bool:
        return self.spent_seconds > self.seconds_max


class RuleQueries:
    """Each query once. Once the store does not answer, no more are asked. `instant` raises QueryError.

    `in_round`: what the texts of all rules of a round share.
    """

    def __init__(
        self,
        instant: Callable[[str], Sequence[Sample]],
        in_round: Allowance | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._instant, self._clock = instant, clock
        self._own, self._in_round = Allowance(SECONDS_MAX), in_round
        self._answers: dict[str, Sequence[Found] | QueryError] = {}
        self._away: QueryError | None = None

    def __call__(self, promql: str) -> Sequence[Found]:
        """What it finds. Raises Failed, of it NoAnswer."""
        if promql not in self._answers:
            self._check()
            begun = self._clock()
            self._answers[promql] = self._away or self._asked(promql)
            took = self._clock() - begun
            self._own.spent_seconds += took
            if self._in_round is not None:
                self._in_round.spent_seconds += took
        answer = self._answers[promql]
        if isinstance(answer, QueryError):
            kind = Failed if isinstance(answer, _OF_THE_QUERY) else NoAnswer
            raise kind(f"query {promql}: {answer}") from answer
        return answer

    def _check(self) -> None:
        """Raises NoAnswer where no more may be asked."""
        if len(self._answers) >= QUERIES_MAX:
            raise NoAnswer(f"the texts of this rule ask more than {QUERIES_MAX} queries")
        if self._own.is_over:
            raise NoAnswer(f"what the texts of this rule ask takes longer than {SECONDS_MAX:g} s")
        if self._in_round is not None and self._in_round.is_over:
            seconds_max = self._in_round.seconds_max
            raise NoAnswer(f"what the texts of all rules of a round ask takes longer than {seconds_max:g} s")

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
