"""Which event asks for what."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.alerts.health import (
    CAUSES,
    HARDWARE_ALERTS,
    RECOVERIES,
    TITLE_CHARACTERS,
    believed_at,
    engine_labels,
    judge,
    recovery_of,
)
from controlplane.alerts.models import NodeEvent
from tests.controlplane.alerts.conftest import XID_79

KINDS = [*CAUSES, *RECOVERIES, "of_a_later_version"]


def happened(kind: str, severity: str, detail: str = XID_79, subject: str = "GPU-3") -> NodeEvent:
    return NodeEvent(node="n1", kind=kind, subject=subject, severity=severity, detail=detail)


events = st.builds(
    happened,
    st.sampled_from(KINDS),
    st.sampled_from(["info", "warning", "critical"]),
    st.text(max_size=300) | st.just(XID_79),
    st.text(max_size=200),
)


@pytest.mark.parametrize(
    ("kind", "severity", "expected"),
    [
        ("xid", "critical", ("cordon", "hardware_fault")),
        ("xid", "warning", ("incident", "warning")),
        ("xid", "info", ("note", "informational")),
        ("sxid", "critical", ("cordon", "hardware_fault")),
        ("gpu_lost", "critical", ("cordon", "hardware_fault")),
        ("spot_notice", "critical", ("cordon", "leaving")),
        ("spot_notice_ended", "info", ("resolve", "recovered")),
        ("gpu_unresponsive", "critical", ("incident", "critical")),
        ("gpu_error", "warning", ("incident", "warning")),
        ("nvml_failed", "critical", ("incident", "critical")),
        ("nvml_failed", "warning", ("incident", "warning")),
        ("engine_down", "critical", ("incident", "critical")),
        ("engine_hung", "critical", ("incident", "critical")),
        ("engine_paused", "warning", ("incident", "warning")),
        ("engine_restarted", "warning", ("incident", "warning")),
        ("engine_restarted", "info", ("note", "informational")),
        ("engine_sleeping", "info", ("note", "informational")),
        ("engine_probe_failed", "warning", ("incident", "warning")),
        ("engine_probe_ok", "info", ("resolve", "recovered")),
        ("gpu_recovered", "info", ("resolve", "recovered")),
        ("nvml_recovered", "info", ("resolve", "recovered")),
        ("engine_up", "info", ("resolve", "recovered")),
        ("of_a_later_version", "critical", ("incident", "critical")),
        ("of_a_later_version", "warning", ("note", "unknown_kind")),
    ],
)
def test_kind_and_severity_decide(kind: str, severity: str, expected: tuple[str, str]) -> None:
    verdict = judge(happened(kind, severity))
    assert (verdict.kind, verdict.reason) == expected


@pytest.mark.parametrize(
    ("kind", "detail", "subject", "labels"),
    [
        ("xid", XID_79, "GPU-3", {"alertname": "GpuXid", "node": "n1", "gpu": "GPU-3", "xid": "79"}),
        ("xid", "says something else", "GPU-3", {"alertname": "GpuXid", "node": "n1", "gpu": "GPU-3"}),
        (
            "sxid", "SXid 12028 on the NVSwitch at 0000:05:00.0: x", "0000:05:00.0",
            {"alertname": "NvSwitchSxid", "node": "n1", "nvswitch": "0000:05:00.0", "sxid": "12028"},
        ),
        ("gpu_lost", "GPU 3 is lost", "GPU-3", {"alertname": "GpuLost", "node": "n1", "gpu": "GPU-3"}),
        ("nvml_failed", "NVML fails", "nvml", {"alertname": "NvmlFailed", "node": "n1"}),
        ("engine_down", "refused", "e1", {"alertname": "EngineDown", "node": "n1", "engine": "e1"}),
        ("engine_hung", "hangs", "e1", {"alertname": "EngineHung", "node": "n1", "engine": "e1"}),
        ("engine_paused", "paused", "e1", {"alertname": "EnginePaused", "node": "n1", "engine": "e1"}),
        ("engine_restarted", "new", "e1", {"alertname": "EngineRestarted", "node": "n1", "engine": "e1"}),
        ("engine_probe_failed", "no", "e1", {"alertname": "EngineProbeFailed", "node": "n1", "engine": "e1"}),
        ("new", "x", "y", {"alertname": "NodeEvent", "node": "n1", "kind": "new", "subject": "y"}),
    ],
)  # fmt: skip
def test_labels_name_the_cause(kind: str, detail: str, subject: str, labels: dict[str, str]) -> None:
    assert judge(happened(kind, "critical", detail, subject)).labels == labels


def test_a_title_is_the_node_and_what_happened_in_a_clause() -> None:
    title = judge(happened("xid", "critical")).title
    assert title == "n1: XID 79 (GPU has fallen off the bus) on GPU 3 (H100, 0000:41:00.0)"


@given(events)
def test_every_critical_event_reaches_a_person_and_no_mild_one_takes_a_node_out(event: NodeEvent) -> None:
    verdict = judge(event)
    opens = verdict.kind in {"cordon", "incident"}
    if event.severity == "critical" and event.kind not in RECOVERIES:
        assert opens
    if verdict.kind == "cordon":
        assert event.severity == "critical"
        assert verdict.labels is not None
        assert verdict.labels["alertname"] in HARDWARE_ALERTS
    assert opens == (verdict.labels is not None)
    assert opens == (0 < len(verdict.title) <= TITLE_CHARACTERS)
    assert (verdict.kind == "resolve") == bool(verdict.resolves)


@given(st.sampled_from(list(CAUSES)), st.text(max_size=20))
def test_a_recovery_ends_exactly_what_the_same_subject_opened(kind: str, subject: str) -> None:
    recovery = recovery_of(kind)
    if recovery is None:
        assert CAUSES[kind].quietens
        return
    opened = judge(happened(kind, "critical", subject=subject)).labels
    assert opened in judge(happened(recovery, "info", subject=subject)).resolves
    if CAUSES[kind].about:
        assert opened not in judge(happened(recovery, "info", subject=f"{subject}'")).resolves


def test_an_engine_that_is_up_again_neither_is_down_nor_hangs_nor_stands() -> None:
    resolves = judge(happened("engine_up", "info", subject="e1")).resolves
    assert sorted(labels["alertname"] for labels in resolves) == ["EngineDown", "EngineHung", "EnginePaused"]
    assert all(labels in engine_labels("n1", "e1") for labels in resolves)


def test_every_incident_that_an_engine_can_have_is_among_those_of_a_removed_one() -> None:
    about = {cause.alertname for cause in CAUSES.values() if cause.about == "engine"}
    assert {labels["alertname"] for labels in engine_labels("n1", "e1")} == about


moments = st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1), timezones=st.just(UTC))
OLDEST = timedelta(days=30)


@given(moments, st.datetimes(datetime(2020, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)))
def test_an_event_never_counts_from_the_future_or_from_longer_ago_than_is_kept(at: datetime, now: datetime) -> None:
    believed = believed_at(at, now, OLDEST)
    assert now - OLDEST <= believed <= now
    assert believed == (at if now - OLDEST <= at <= now else now)
