"""Row 6: one tenant that takes what others are promised."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.diagnosis.detector import Finding, Fleet
from controlplane.diagnosis.detectors.noisy_neighbour import NoisyNeighbour
from tests.controlplane.diagnosis import helpers
from tests.controlplane.diagnosis.detectors import kit
from tests.controlplane.diagnosis.helpers import counter, gauge, histogram

DETECTOR = NoisyNeighbour()


def asked(tenant: str, tokens: float, *, missed: float = 0.0, met: float = 1.0, pool: str = "chat") -> list[Any]:
    """A second's; a third of the tokens are output."""
    labels: dict[str, Any] = {"pool": pool, "tenant": tenant, "gateway": "g1", "priority_class": "interactive"}
    return [
        counter("headworks_gateway_requests_total", met + missed, outcome="ok", reason="none", **labels),
        counter("headworks_gateway_prompt_tokens_total", tokens * 2 / 3, **labels),
        counter("headworks_gateway_generation_tokens_total", tokens / 3, **labels),
        counter("headworks_gateway_slo_requests_total", met, outcome="met", **labels),
        counter("headworks_gateway_slo_requests_total", missed, outcome="missed", **labels),
    ]


WAITS = gauge("headworks_gateway_queue_length", 5, pool="chat", gateway="g1")
NOISY = [
    WAITS,
    *asked("batch", 9000.0),
    *asked("acme", 500.0, missed=0.5, met=0.5),
    *asked("globex", 500.0, missed=0.5, met=0.5),
    gauge("headworks_gateway_pool_requests", 30, pool="chat", gateway="g1"),
]


def fleet(**batch: Any) -> Fleet:
    row = helpers.tenant("batch", **{"default_priority_class": "interactive", **batch})
    return helpers.fleet(
        [helpers.pool(), helpers.pool("long", engines=("e2",))],
        tenants=[helpers.tenant(), helpers.tenant("globex"), row],
        priority_classes=[helpers.priority_class(), helpers.priority_class("night", 90)],
    )


def found(series: list[Any], of: Fleet | None = None) -> list[Finding]:
    return helpers.judged(DETECTOR, series, of or fleet())


def test_a_tenant_that_takes_far_more_than_its_weight_is_named():
    (finding,) = found(NOISY)
    assert (finding.subject, finding.pools, finding.tenants) == ("tenant/batch", ("chat",), ("batch",))
    assert finding.confidence_permille >= 800
    evidence: dict[str, Any] = {part.name: part for part in finding.evidence}
    assert evidence["token_share"].value == pytest.approx(0.9)
    # Six times the others' together, of twice its weight: 6 × ⅓ ÷ (⅔ + 6 × ⅓).
    assert evidence["token_share"].limit == pytest.approx(3 / 4)
    assert evidence["weight_share"].value == pytest.approx(1 / 3)
    assert (evidence["missed_by_others"].value, evidence["missed_by_others"].limit) == (
        pytest.approx(0.5), pytest.approx(0.1),
    )  # fmt: skip


def test_its_limits_are_its_weights_share_of_what_is_served():
    (finding,) = found(NOISY)
    changes = {lever.key: lever.edits[0].changes for lever in finding.levers}
    assert changes == {
        # A third of 10,000 tokens a second, and of 30 requests.
        "tpm_limit": {"tpm_limit": pytest.approx(200_000, abs=2)},
        "max_parallel_requests": {"max_parallel_requests": 10},
        "priority_class": {"default_priority_class": "night"},
    }


def test_what_it_has_of_other_pools_it_keeps():
    (finding,) = found([*NOISY, *asked("batch", 600.0, pool="long")])
    assert finding.levers[0].edits[0].changes == {"tpm_limit": pytest.approx(236_000, abs=2)}


def test_limits_that_it_has_already_are_not_offered():
    of = fleet(tpm_limit=1000, max_parallel_requests=2, priority_classes=["interactive"])
    (finding,) = found(NOISY, of)
    assert not finding.levers


@pytest.mark.parametrize(
    ("series", "of"),
    [
        # Others are served as promised.
        ([WAITS, *asked("batch", 9000.0), *asked("acme", 1000.0)], None),
        # Nobody waits: they are late for another reason.
        (NOISY[1:], None),
        # Nobody else is there.
        ([WAITS, *asked("batch", 9000.0, missed=1.0)], None),
        # Each takes its part.
        ([WAITS, *asked("batch", 4000.0, missed=1.0), *asked("acme", 3000.0, missed=1.0)], None),
        # Its weight gives it as much.
        (NOISY, fleet(weight=18)),
        # Too few others to say.
        ([WAITS, *asked("batch", 9000.0), *asked("acme", 50.0, missed=0.05, met=0.0)], None),
    ],
)
def test_a_share_that_is_due_or_hurts_nobody_is_none(series: list[Any], of: Fleet | None):
    assert not found(series, of)


def test_a_storm_of_retries_and_a_runaway_agent_are_other_rows():
    labels: dict[str, Any] = {"pool": "chat", "tenant": "batch", "gateway": "g1"}
    storm = [
        counter("headworks_gateway_repeated_requests_total", 3.0, kind="retry", **labels),
        counter("headworks_gateway_requests_total", 4.0, outcome="refused", reason="queue_full", **labels),
    ]
    assert not found([*NOISY, *storm])
    near = counter("headworks_gateway_sessions_near_limit_total", 0.1, tenant="batch", reason="session_tokens")
    assert not found([*NOISY, near])


def test_others_that_are_refused_for_want_of_capacity_miss_it_too():
    labels: dict[str, Any] = {"pool": "chat", "tenant": "acme", "gateway": "g1"}
    refused = counter("headworks_gateway_requests_total", 1.0, outcome="refused", reason="queue_full", **labels)
    (finding,) = found([WAITS, *asked("batch", 9000.0), *asked("acme", 1000.0), refused])
    assert finding.evidence[2].value == pytest.approx(0.5)


def test_without_promises_waits_beyond_the_usual_count():
    without = [each for each in NOISY if "slo_requests" not in each.labels["__name__"]]
    slow = histogram("headworks_gateway_ttft_seconds", {8.0: 1.0}, pool="chat", tenant="acme", gateway="g1")
    assert found([*without, *slow])
    assert not found(without)


@pytest.mark.django_db
def test_its_levers_can_be_applied(stored: None):
    swapped = [WAITS, *asked("globex", 9000.0), *asked("acme", 500.0, missed=0.5), NOISY[-1]]
    of = helpers.fleet(
        tenants=[helpers.tenant(), helpers.tenant("globex", default_priority_class="interactive")],
        priority_classes=[helpers.priority_class(), helpers.priority_class("batch", 90)],
    )
    (finding,) = found(swapped, of)
    assert len(finding.levers) == 3
    kit.dry_run(finding)


def judged(of: Fleet, tokens: float, missed: float, in_flight: float = 30.0) -> list[Finding]:
    noisy, other = {"pool": "chat", "tenant": "globex"}, {"pool": "chat", "tenant": "acme"}
    answers = helpers.readings(
        DETECTOR,
        prompt_tokens=[(noisy, tokens), (other, 100.0)],
        queue=[({"pool": "chat"}, 5.0)],
        judged=[(other, 100.0)],
        missed=[(other, missed)],
        in_flight=[({"pool": "chat"}, in_flight)],
    )
    return list(DETECTOR.judge(answers, of))


numbers = st.floats(0, 1e6)


@given(tokens=numbers, missed=st.floats(0, 100), more=numbers, more_missed=st.floats(0, 100))
def test_more_tokens_and_more_missed_never_clear_it(tokens: float, missed: float, more: float, more_missed: float):
    of = helpers.fleet(tenants=[helpers.tenant(), helpers.tenant("globex")])
    # Below a tenth of the other's it would be that one's turn.
    tokens = max(10.0, tokens)
    worse = {each.subject for each in judged(of, tokens + more, max(missed, more_missed))}
    assert {each.subject for each in judged(of, tokens, missed)} - {"tenant/acme"} <= worse


@kit.few
@given(of=kit.fleets(), tokens=st.floats(1e6, 1e9), in_flight=st.floats(0, 1e6))
def test_its_edits_hold_in_any_fleet(of: Fleet, tokens: float, in_flight: float):
    kit.check(judged(of, tokens, 100.0, in_flight), of)
