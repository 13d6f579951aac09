"""One round of the diagnosis: claim, ask the metrics, load the fleet, judge, store, watch what was applied, act.

headworks' beat ──► look() ──► 20 detectors ──► findings ──► offers ──► policies
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from django.utils import timezone

from controlplane import settings_rows
from controlplane.core.fields import epoch_ms
from controlplane.core.idle import give_back_connection
from controlplane.diagnosis import described, facts
from controlplane.diagnosis.asking import expressions, readings_of
from controlplane.diagnosis.detector import Detector, Fleet, Reading, Readings
from controlplane.diagnosis.detectors.registry import DETECTORS
from controlplane.diagnosis.models import DetectorState
from controlplane.diagnosis.services import acting, findings, rounds, verification
from controlplane.diagnosis.services.findings import Looked
from controlplane.telemetry import query

log = logging.getLogger(__name__)


class Blind(Exception):
    """A detector's question has no answer; the message says why."""


class Questions:
    """Answers of the metrics at one moment. The same question is asked once, and none after the deadline."""

    def __init__(self, at: datetime, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._at_ms, self._seconds, self._clock = epoch_ms(at), seconds, clock
        self._deadline = clock() + seconds
        self._answers: dict[str, Sequence[query.Sample] | Blind] = {}

    def samples(self, promql: str) -> Sequence[query.Sample]:
        """Raises Blind."""
        if promql not in self._answers:
            self._answers[promql] = self._asked(promql)
        answer = self._answers[promql]
        if isinstance(answer, Blind):
            raise answer
        return answer

    def _asked(self, promql: str) -> Sequence[query.Sample] | Blind:
        if self._clock() > self._deadline:
            return Blind(f"the metrics took longer than {self._seconds:g} s for the questions of this round")
        try:
            return query.instant(promql, self._at_ms)
        except query.QueryError as error:
            return Blind(str(error))

    def readings(self, detector: Detector, window_seconds: int) -> Readings:
        """Raises Blind, which names the query."""
        answers: dict[str, tuple[Reading, ...]] = {}
        for name, promql in expressions(detector, window_seconds).items():
            try:
                answers[name] = readings_of(self.samples(promql))
            except Blind as blind:
                raise Blind(f"{name}: {blind}") from blind
        return Readings(answers)


def look(detectors: Sequence[Detector] = DETECTORS, clock: Callable[[], datetime] = timezone.now) -> bool:
    """Hold a round, if one is due and no other worker has taken it; whether it was held."""
    at = clock()
    if not rounds.claim(at):
        return False
    begun = time.monotonic()
    give_back_connection()
    looked = look_with(detectors, at)
    if findings.store(looked, at, _since_ms(begun)):
        verification.watch({each.name: each for each in looked}, at)
        verification.revert_by_policies()
        acting.act(at)
    return True


def look_with(detectors: Sequence[Detector], at: datetime) -> list[Looked]:
    """What each detector sees at one moment. One that fails is blind and named, and the others go on."""
    window_seconds = settings_rows.DIAGNOSIS_WINDOW_SECONDS.read()
    questions = Questions(at, settings_rows.DIAGNOSIS_QUERY_SECONDS.read())
    try:
        shares = facts.shares_of(questions.samples(facts.shares_query(window_seconds)))
    except Blind as blind:
        # What detectors ask will say the same, and those that ask nothing can do without.
        log.warning("who uses which pool is not known: %s", blind)
        shares = {}
    fleet = facts.load(at, window_seconds, shares)
    give_back_connection()
    return [_look(detector, questions, fleet) for detector in _longest_blind_first(detectors)]


def _longest_blind_first(detectors: Sequence[Detector]) -> Iterable[Detector]:
    """Where the metrics are too slow for all, each has its turn."""
    blind = set(DetectorState.objects.exclude(error="").values_list("name", flat=True))
    return sorted(detectors, key=lambda detector: detector.name not in blind)


def _look(detector: Detector, questions: Questions, fleet: Fleet) -> Looked:
    begun = time.monotonic()

    def told(**what: object) -> Looked:
        looked = Looked(detector.name, detector.lasts_rounds, weighs_window=detector.weighs_window)
        return replace(looked, took_ms=_since_ms(begun), **what)  # type: ignore[arg-type]

    try:
        readings = questions.readings(detector, fleet.window_seconds)
        most = settings_rows.DIAGNOSIS_FINDINGS_MAX.read()
        found = described.prepared(detector.judge(readings, fleet), most, fleet.window_seconds)
    except Blind as blind:
        return told(error=str(blind))
    except Exception as error:
        log.exception("detector %s failed", detector.name)
        return told(error=f"failed here, and the log says more: {type(error).__name__}")
    return told(found=found)


def _since_ms(begun: float) -> int:
    return round((time.monotonic() - begun) * 1000)
