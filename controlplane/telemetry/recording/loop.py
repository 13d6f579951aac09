"""From groups that are due to recorded series: claim, query, label, write."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from django.utils import timezone

from controlplane.core.fields import epoch_ms, from_epoch_ms
from controlplane.core.reported import storable_text
from controlplane.telemetry import query, settings_rows
from controlplane.telemetry.models import RecordingRule
from controlplane.telemetry.recording import evaluations, rules
from controlplane.telemetry.recording.evaluations import Labels
from controlplane.telemetry.recording.writing import NotWritten, write
from wire.write_body import METRIC_NAME, STALE, Series

log = logging.getLogger(__name__)

_Key = tuple[tuple[str, str], ...]


class BadResult(ValueError):
    """A result that cannot be recorded; the message says why."""


def evaluate_due(clock: Callable[[], datetime] = timezone.now) -> int:
    """Evaluate every group whose time has come, one after the other; how many rules."""
    now_ms = epoch_ms(clock())
    rules.follow_builtin(now_ms)
    end_removed(now_ms)
    evaluated = 0
    while (claimed := evaluations.claim(epoch_ms(clock()))) is not None:
        group, at_ms = claimed
        for rule in group:
            _evaluate(rule, at_ms)
        evaluated += len(group)
    return evaluated


def end_removed(at_ms: int) -> None:
    """End the series of rules that are gone, but those that another rule writes."""
    for rule in evaluations.gone():
        alive = {_key(labels) for labels in evaluations.alive(rule.record)}
        try:
            write(_ended(rule.record, (labels for labels in rule.written if _key(labels) not in alive), at_ms), at_ms)
        except NotWritten as error:
            log.warning("series of %s end by the look-back alone: %s", rule.record, error)
        evaluations.forget(rule)


def _evaluate(rule: RecordingRule, at_ms: int) -> None:
    at, begun = from_epoch_ms(at_ms), time.perf_counter()

    def took_ms() -> int:
        return round((time.perf_counter() - begun) * 1000)

    try:
        found = recorded(rule.labels, query.instant(rule.expr, at_ms), settings_rows.RECORDING_SERIES_MAX.read())
        series = [Series({**labels, METRIC_NAME: rule.record}, [(at_ms, value)]) for labels, value in found.values()]
        vanished = (labels for labels in rule.written if _key(labels) not in found)
        write([*series, *_ended(rule.record, vanished, at_ms)], at_ms)
    except (query.QueryError, BadResult, NotWritten) as error:
        log.warning("recording rule %s has no result: %s", rule.record, error)
        evaluations.fail(rule, at, took_ms(), str(error))
    except Exception as error:
        # The rules after it have their turn all the same.
        log.exception("recording rule %s could not be evaluated", rule.record)
        evaluations.fail(rule, at, took_ms(), f"failed here, and the log says more: {type(error).__name__}")
    else:
        evaluations.store(rule, at, took_ms(), [labels for labels, _ in found.values()])


def recorded(
    own: Mapping[str, str], samples: Sequence[query.Sample], series_max: int
) -> dict[_Key, tuple[Labels, float]]:
    """Labels and value of each series of a result: its own labels without the name, those of the rule over them.

    Raises BadResult.
    """
    if len(samples) > series_max:
        raise BadResult(
            f"too_many_series: the result has {len(samples)} series, and HEADWORKS_RECORDING_SERIES_MAX is "
            f"{series_max}: choose or aggregate fewer"
        )
    found = {}
    for sample in samples:
        named = {name: storable_text(value) for name, value in sample.labels.items() if name != METRIC_NAME}
        labels = {**named, **own}
        found[_key(labels)] = labels, sample.value
    if len(found) < len(samples):
        raise BadResult("duplicate: two series have the same labels once the rule's are set; aggregate them into one")
    return found


def _ended(record: str, ended: Iterable[Labels], at_ms: int) -> list[Series]:
    return [Series({**labels, METRIC_NAME: record}, [(at_ms, STALE)]) for labels in ended]


def _key(labels: Mapping[str, str]) -> _Key:
    return tuple(sorted(labels.items()))
