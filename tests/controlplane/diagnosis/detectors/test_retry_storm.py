"""Row 9: retries that keep a fleet from recovering."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.diagnosis.detector import Finding, Fleet
from controlplane.diagnosis.detectors.retry_storm import RetryStorm
from tests.controlplane.diagnosis import helpers
from tests.controlplane.diagnosis.detectors import kit
from tests.controlplane.diagnosis.helpers import counter
from wire.write_body import Series

LABELS: dict[str, Any] = {"pool": "chat", "tenant": "acme", "gateway": "g1"}
DETECTOR = RetryStorm()


def requests(outcome: str, reason: str, per_second: float, **labels: str) -> Any:
    given: dict[str, Any] = {**LABELS, **labels, "outcome": outcome, "reason": reason}
    return counter("headworks_gateway_requests_total", per_second, **given)


def retries(per_second: float, **labels: str) -> Any:
    return counter("headworks_gateway_repeated_requests_total", per_second, kind="retry", **{**LABELS, **labels})


# 4 of 10 a second are retries, 6 are refused.
STORM = [requests("ok", "none", 4.0), requests("refused", "queue_full", 6.0), retries(4.0)]


def found(series: list[Any], of: Fleet | None = None) -> list[Finding]:
    return helpers.judged(DETECTOR, series, of or helpers.fleet())


def test_retries_beside_refusals_are_a_storm():
    (finding,) = found(STORM)
    assert (finding.subject, finding.tenants) == ("pool/chat", ("acme",))
    assert finding.confidence_permille >= 800
    evidence: dict[str, Any] = {part.name: part for part in finding.evidence}
    assert (evidence["retries"].value, evidence["retries"].limit) == (pytest.approx(0.4), 0.1)
    assert (evidence["come_to_nothing"].value, evidence["come_to_nothing"].limit) == (pytest.approx(0.6), 0.2)


def test_clients_that_leave_and_come_again_are_a_storm_as_well():
    """Their time-out is shorter than an answer takes."""
    assert found([STORM[0], requests("cancelled", "client_left", 6.0), retries(4.0)])
    # They leave for good: ghost work, or impatience.
    assert not found([STORM[0], requests("cancelled", "client_left", 6.0)])


@pytest.mark.parametrize(
    "series",
    [
        # Refused, but not asked again: queue debt.
        [*STORM[:2], retries(0.5)],
        # Asked again, and answered.
        [requests("ok", "none", 10.0), retries(4.0)],
        # Asked again later, or by others: repeat questions.
        [*STORM[:2], counter("headworks_gateway_repeated_requests_total", 8.0, kind="duplicate", **LABELS)],
        # A handful.
        [requests("refused", "queue_full", 0.1), retries(0.05)],
        # The tenant's own limit stops them at the door.
        [requests("ok", "none", 4.0), requests("refused", "rpm_limit", 6.0), retries(6.0)],
    ],
)
def test_few_retries_answered_ones_and_those_that_a_limit_stops_are_none(series: list[Any]):
    assert not found(series)


def test_a_limit_that_holds_the_storm_clears_it():
    """First tries are 6 a second; with a limit of 396 a minute 6.6 come through, the rest is refused at the door."""
    (finding,) = found(STORM)
    (edit,) = finding.levers[0].edits
    assert (finding.levers[0].key, edit.noun, edit.key) == ("retry_budget", "tenants", "acme")
    assert edit.changes == {"rpm_limit": pytest.approx(396, abs=1)}
    held = [requests("ok", "none", 4.0), requests("refused", "queue_full", 2.6), requests("refused", "rpm_limit", 3.4)]
    assert not found([*held, retries(4.0)])


def test_who_is_answered_is_not_limited_below_that():
    """Retries are known when they come, requests when they end."""
    (finding,) = found([*STORM[:2], retries(12.0)])
    assert finding.levers[0].edits[0].changes == {"rpm_limit": pytest.approx(4 * 60 * 1.1, abs=1)}


def test_it_is_surer_where_more_comes_than_before():
    times = range(helpers.AT_MS - 600_000, helpers.AT_MS + 1, 5000)
    begun = helpers.AT_MS - 120_000
    labels: dict[str, Any] = {**LABELS, "outcome": "refused", "reason": "queue_full"}
    rising = Series(
        {"__name__": "headworks_gateway_requests_total", **labels},
        [(at, (at - times[0]) / 1000 + max(0, at - begun) / 1000 * 5) for at in times],
    )
    (steady,), (risen,) = found(STORM), found([STORM[0], rising, retries(4.0)])
    assert risen.confidence_permille > steady.confidence_permille


def test_only_tenants_that_retry_are_named_and_limited():
    globex = requests("ok", "none", 5.0, tenant="globex")
    (finding,) = found([*STORM, globex], helpers.fleet(tenants=[helpers.tenant(), helpers.tenant("globex")]))
    assert finding.tenants == ("acme",)
    assert [edit.key for edit in finding.levers[0].edits] == ["acme"]


def test_a_limit_that_is_lower_already_stays():
    (finding,) = found(STORM, helpers.fleet(tenants=[helpers.tenant(rpm_limit=60)]))
    assert [lever.key for lever in finding.levers] == ["full_jitter"]


def test_a_breaker_that_sleeps_while_engines_fail_opens_earlier():
    """Seed 1, section 9: at a fifth of errors."""
    slack = {"error_permille": 900, "minimum_requests": 1000}
    breaker = {**helpers.pool().row["breaker"], **slack}
    of = helpers.fleet([helpers.pool(breaker=breaker)])
    failing = [requests("ok", "none", 4.0), requests("failed", "engine_error", 6.0), retries(4.0)]
    (finding,) = found(failing, of)
    (lever,) = [each for each in finding.levers if each.key == "breaker"]
    # 10 a second are 300 in its 30 s; half of them are enough to judge.
    assert lever.edits[0].changes == {"breaker": {"error_permille": 200, "minimum_requests": pytest.approx(150, abs=1)}}
    (finding,) = found(failing)
    assert "breaker" not in [each.key for each in finding.levers]


@pytest.mark.django_db
def test_its_levers_can_be_applied(stored: None):
    breaker = {**helpers.pool().row["breaker"], "error_permille": 900}
    failing = [requests("ok", "none", 4.0), requests("failed", "engine_error", 6.0), retries(4.0)]
    (finding,) = found(failing, helpers.fleet([helpers.pool(breaker=breaker)]))
    assert [each.key for each in finding.levers] == ["retry_budget", "breaker", "full_jitter"]
    kit.dry_run(finding)


def judged(of: Fleet, retried: float, refused: float, failed: float = 0.0) -> list[Finding]:
    here = {"pool": "chat", "tenant": "acme"}
    answers = helpers.readings(
        DETECTOR, asked=[(here, 100.0)], retries=[(here, retried)], for_capacity=[(here, refused)],
        failed=[(here, failed)],
    )  # fmt: skip
    return list(DETECTOR.judge(answers, of))


shares = st.floats(0, 100)


@given(retried=shares, refused=shares, more=shares, more_refused=shares)
def test_more_retries_and_more_refusals_never_clear_it(
    retried: float, refused: float, more: float, more_refused: float
):
    of = helpers.fleet()
    assert len(judged(of, retried + more, refused + more_refused)) >= len(judged(of, retried, refused))


@kit.few
@given(of=kit.fleets(), retried=st.floats(10, 1e6), failed=st.floats(20, 100))
def test_its_edits_hold_in_any_fleet(of: Fleet, retried: float, failed: float):
    found = judged(of, retried, 0.0, failed)
    assert found
    kit.check(found, of)
