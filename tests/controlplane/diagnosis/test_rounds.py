"""A round asks, judges and stores: hysteresis, blindness, turns of workers, what is written and what is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.alerts.models import Alert
from controlplane.diagnosis import described, facts, round, standing
from controlplane.diagnosis.detector import Edit, Lever
from controlplane.diagnosis.models import DetectorState, Finding, Proposal
from controlplane.diagnosis.services import findings
from controlplane.telemetry.promql.errors import Unanswerable
from controlplane.telemetry.results import Sample
from tests.controlplane.diagnosis.conftest import INTERVAL, LOWER, Rounds, Scripted, Sure, finding

Round = Callable[..., datetime]


class Other(Sure):
    name: ClassVar[str] = "hardware"
    number: ClassVar[int] = 20
    queries: ClassVar[Mapping[str, str]] = {"xid": "headworks_xid"}


def test_what_is_found_is_stored_with_its_evidence_and_offers(rounds: Round, detector: Sure):
    detector.finds = [finding()]
    at = rounds()
    row = Finding.objects.get()
    assert (row.detector, row.subject, row.state, row.since) == ("kv_exhausted", "pool/chat", "open", at)
    assert row.evidence == [
        {"name": "kv_use", "value": 0.9712, "unit": "ratio", "limit": 0.95,
         "expr": "headworks_engine_kv_cache_usage_ratio"}
    ]  # fmt: skip
    assert row.summary == {"en": "KV cache is full"}
    offered = Proposal.objects.get()
    assert (offered.key, offered.state) == ("lower_admission", "proposed")
    assert offered.edits == [{"noun": "pools", "key": "chat", "changes": {"kv_admit_permille": 800}, "create": False}]


def test_what_does_not_last_is_shown_to_nobody(fleet: None, metrics: Any):
    detector = Scripted()
    rounds = Rounds([detector])
    detector.finds = [finding()]
    rounds()
    assert not standing.shown().exists()
    detector.finds = []
    rounds()
    assert not Finding.objects.exists()
    detector.finds = [finding()]
    rounds(2)
    assert standing.shown().get().since == rounds.at - INTERVAL
    detector.finds = []
    rounds()
    assert standing.open_findings()
    cleared_at = rounds()
    assert Finding.objects.get().cleared_at == cleared_at
    assert Proposal.objects.get().state == "superseded"


def test_what_comes_again_is_a_finding_of_its_own(rounds: Round, detector: Sure):
    detector.finds = [finding()]
    rounds()
    detector.finds = []
    rounds()
    detector.finds = [finding()]
    rounds()
    assert sorted(Finding.objects.values_list("state", flat=True)) == ["cleared", "open"]


def test_a_round_that_says_the_same_writes_no_finding(rounds: Round, detector: Sure):
    detector.finds = [finding()]
    rounds()
    with CaptureQueriesContext(
        connection,
    ) as captured:
        at = rounds()
    assert not [query for query in captured.captured_queries if "diagnosis_finding" in _written(query["sql"])]
    assert not [query for query in captured.captured_queries if "diagnosis_proposal" in _written(query["sql"])]
    row = Finding.objects.get()
    assert standing.seen_at(row, standing.looked_at()) == at


def _written(sql: str) -> str:
    return sql if sql.startswith(("UPDATE", "INSERT", "DELETE")) else ""


def test_offers_follow_their_numbers_and_go_with_them(rounds: Round, detector: Sure):
    detector.finds = [finding()]
    rounds()
    other = replace(LOWER, edits=(replace(LOWER.edits[0], changes={"kv_admit_permille": 700}),))
    detector.finds = [finding(levers=[Lever("advice", "Add engines", "measured", advice="Two more"), other])]
    rounds()
    lowered = Proposal.objects.get(key="lower_admission")
    assert (lowered.edits[0]["changes"], lowered.place) == ({"kv_admit_permille": 700}, 1)
    detector.finds = [finding(levers=[other])]
    rounds()
    assert Proposal.objects.get(key="advice").said == "its detector offers it no more"


def test_a_detector_that_fails_is_blind_and_the_others_go_on(fleet: None, metrics: Any):
    failing, other = Sure(), Other()
    failing.fails, other.finds = ZeroDivisionError(), [finding("node/n1", levers=())]
    rounds = Rounds([failing, other])
    rounds()
    blind = DetectorState.objects.get(name="kv_exhausted")
    assert "ZeroDivisionError" in blind.error
    assert [row.detector for row in standing.open_findings()] == ["hardware"]


def test_what_no_row_can_hold_blinds_its_detector_alone(fleet: None, metrics: Any):
    failing, other = Sure(), Other()
    failing.finds = [finding(levers=[Lever("odd", "Odd", "", edits=(Edit("pools", "chat", {"adapters": {1, 2}}),))])]
    other.finds = [finding("node/n1", levers=())]
    Rounds([failing, other])()
    assert "TypeError" in DetectorState.objects.get(name="kv_exhausted").error
    assert [row.detector for row in standing.open_findings()] == ["hardware"]


def test_a_query_that_fails_blinds_those_that_ask_it(rounds: Round, detector: Sure, metrics: Any):
    metrics["headworks_engine_kv_cache_usage_ratio"] = Unanswerable("many-to-many matching")
    rounds()
    assert DetectorState.objects.get().error == "kv_use: many-to-many matching"
    assert not detector.saw


def test_what_was_found_stands_while_its_detector_is_blind(rounds: Round, detector: Sure):
    detector.finds = [finding()]
    rounds()
    detector.fails = ValueError()
    rounds(3)
    assert Finding.objects.get().state == "open"
    detector.fails, detector.finds = None, []
    rounds()
    assert Finding.objects.get().state == "cleared"


def test_questions_after_the_deadline_are_not_asked():
    now = [0.0]
    questions = round.Questions(timezone.now(), 5.0, clock=lambda: now[0])
    now[0] = 6.0
    with pytest.raises(round.Blind, match="longer than 5 s"):
        questions.samples("up")


def test_the_same_question_is_asked_once(rounds: Round, detector: Sure, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []

    def instant(promql: str, at_ms: int) -> list[Sample]:
        asked.append(promql)
        return []

    monkeypatch.setattr("controlplane.telemetry.query.instant", instant)
    twin = Other()
    monkeypatch.setattr(Other, "queries", detector.queries)
    round.look_with([detector, twin], timezone.now())
    assert asked.count("headworks_engine_kv_cache_usage_ratio") == 1
    assert len(twin.saw) == 1


def test_of_two_workers_one_holds_the_round(rounds: Round, detector: Sure):
    at = rounds()
    assert not round.look([detector], lambda: at)
    assert not round.look([detector], lambda: at + INTERVAL / 2)
    assert round.look([detector], lambda: at + INTERVAL)


def test_a_clock_that_was_set_back_stops_no_rounds(rounds: Round, detector: Sure):
    at = rounds() - timedelta(days=1)
    assert round.look([detector], lambda: at)
    assert DetectorState.objects.get().looked_at == at


def test_a_round_that_ends_after_a_later_one_is_dropped(rounds: Round, detector: Sure):
    at = rounds()
    late = findings.Looked("kv_exhausted", 1, described.prepared([finding()], most=1, window_seconds=120))
    assert not findings.store([late], at - INTERVAL, 5)
    assert not Finding.objects.exists()


def test_findings_of_a_detector_that_is_no_more_are_over(rounds: Round, detector: Sure):
    detector.finds = [finding()]
    rounds()
    Rounds.__call__(other := Rounds([Other()]), after=2 * INTERVAL)
    assert other.at > Finding.objects.get().since
    assert Finding.objects.get().state == "cleared"


@pytest.mark.parametrize(
    ("moved", "weighs", "begins"),
    [
        ({"applied_at": 0}, True, False),
        ({"applied_at": 0}, False, True),
        ({"applied_at": -200, "verifying_since": 0}, True, False),
        ({"applied_at": -200, "state": "reverted", "state_at": 0}, True, False),
        ({"applied_at": -200, "verifying_since": -200}, True, True),
        ({}, True, True),
    ],
)
def test_nothing_begins_in_a_pool_while_half_of_its_window_is_from_before_a_lever(
    rounds: Round, detector: Sure, moved: Mapping[str, Any], weighs: bool, begins: bool
):
    """Rates of such a window are of no time at all: what is left of the old way looks like another fault."""
    detector.finds = [finding()]
    at = rounds()
    dated = {name: each if name == "state" else at + timedelta(seconds=each) for name, each in moved.items()}
    Proposal.objects.update(**dated)
    other = Other()
    other.weighs_window = weighs  # type: ignore[misc]
    other.finds = [finding(levers=())]
    Rounds.__call__(both := Rounds([detector, other]), after=2 * INTERVAL)
    assert Finding.objects.filter(detector="hardware").exists() == begins
    assert Finding.objects.get(detector="kv_exhausted").state == "open", "the lever's own goes on"
    Rounds.__call__(both, after=timedelta(seconds=240))
    assert Finding.objects.filter(detector="hardware").exists()


def test_no_more_places_are_kept_than_a_setting_says(rounds: Round, detector: Sure, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HEADWORKS_DIAGNOSIS_FINDINGS_MAX", "2")
    detector.finds = [finding(f"tenant/t{number}", confidence=number, levers=()) for number in range(5)]
    rounds()
    assert sorted(Finding.objects.values_list("subject", flat=True)) == ["tenant/t3", "tenant/t4"]


def test_the_fleet_is_told_who_uses_which_pool(rounds: Round, detector: Sure, metrics: Any):
    metrics[facts.shares_query(120)] = [
        Sample({"pool": "chat", "tenant": "acme", "of": "prompt"}, 0, 3.0),
        Sample({"pool": "chat", "tenant": "acme", "of": "generation"}, 0, 3.0),
        Sample({"pool": "chat", "tenant": "beta", "of": "prompt"}, 0, 2.0),
        Sample({"pool": "chat", "tenant": "idle", "of": "prompt"}, 0, 0.0),
    ]
    rounds()
    assert detector.saw[0][1].tenants_of == {"chat": {"acme": 0.75, "beta": 0.25}}


def test_an_alert_is_opened_only_where_a_setting_asks_for_it(
    rounds: Round, detector: Sure, monkeypatch: pytest.MonkeyPatch
):
    detector.finds = [finding(confidence=899)]
    rounds()
    assert not Alert.objects.exists()
    monkeypatch.setenv("HEADWORKS_DIAGNOSIS_ALERT_CONFIDENCE_PERMILLE", "900")
    rounds()
    assert not Alert.objects.exists()
    detector.finds = [finding(confidence=900)]
    rounds(2)
    alert = Alert.objects.get()
    assert alert.labels == {"alertname": "Diagnosis", "detector": "kv_exhausted", "subject": "pool/chat",
                            "pool": "chat", "severity": "warning"}  # fmt: skip
    row = Finding.objects.get()
    assert row.alert == alert
    assert alert.annotations["runbook_url"] == f"diagnosis/findings/{row.pk}/"
    detector.finds = []
    rounds()
    alert.refresh_from_db()
    assert alert.state == "resolved"


def test_old_findings_are_forgotten_with_their_offers(rounds: Round, detector: Sure):
    detector.finds = [finding()]
    rounds()
    detector.finds = []
    at = rounds()
    assert findings.prune(at) == 0
    assert findings.prune(at + timedelta(seconds=1)) == 1
    assert not Proposal.objects.exists()
