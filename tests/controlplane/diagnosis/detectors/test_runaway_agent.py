"""Row 14: an agent that calls the model again and again, and does not end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.diagnosis.detector import Finding, Fleet
from controlplane.diagnosis.detectors.runaway_agent import RunawayAgent
from controlplane.tenants.services import SESSION_LIMITS, TENANTS
from tests.controlplane.diagnosis import helpers
from tests.controlplane.diagnosis.detectors import kit
from tests.controlplane.diagnosis.helpers import counter, gauge, histogram

ACME: Any = {"tenant": "acme"}
DETECTOR = RunawayAgent()


def series(
    loops: float = 0.0, busiest: float = 6, tokens: float = 6000, calls: float = 1.0, known: bool = True,
    near: float = 0.0, closed: float = 0.0, refused: float = 0.0,
) -> list[Any]:  # fmt: skip
    """Rates a second, and the longest session. Where sessions are known, all but one of a hundred end at 8 calls."""
    usual = histogram("headworks_gateway_session_calls", {5.0: 0.5, 8.0: 0.495, 10.0: 0.005}, gateway="g1", **ACME)
    return [
        counter("headworks_gateway_repeated_tool_calls_total", loops, **ACME),
        counter("headworks_gateway_sessions_near_limit_total", near, reason="session_tokens", **ACME),
        counter("headworks_gateway_sessions_closed_total", closed, reason="session_tokens", **ACME),
        counter("headworks_gateway_requests_total", refused, outcome="refused", reason="session_tokens", pool="unknown",
                priority_class="c", **ACME),
        gauge("headworks_gateway_session_calls_highest", busiest, gateway="g1", **ACME),
        gauge("headworks_gateway_session_tokens_highest", tokens, gateway="g1", **ACME),
        counter("headworks_gateway_session_requests_total", calls, pool="chat", **ACME),
        *(usual if known else []),
    ]  # fmt: skip


def found(fleet: Fleet | None = None, **given: Any) -> list[Finding]:
    return helpers.judged(DETECTOR, series(**given), fleet or helpers.fleet())


def limited(**limits: Any) -> Fleet:
    return helpers.fleet(
        tenants=[helpers.tenant(session_limits="agents")], session_limits=[helpers.session_limits(**limits)]
    )


@pytest.mark.parametrize(
    "given",
    [
        {"loops": 0.5},
        {"busiest": 300},
        {"busiest": 300, "calls": 3.0, "known": False},
        {"near": 0.02},
    ],
)
def test_a_session_that_does_not_end_is_found(given: dict[str, Any]):
    (finding,) = found(**given)
    assert (finding.subject, finding.pools, finding.tenants) == ("tenant/acme", ("chat",), ("acme",))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"loops": 0.02},
        # Long as sessions go, and no more than three times what is usual.
        {"busiest": 20},
        # A session of weeks that is used now and then, where nothing is known of others.
        {"busiest": 300, "calls": 0.1, "known": False},
        # The limits hold: what they refuse costs nothing, however often it comes.
        {"closed": 0.02, "refused": 1.0},
    ],
)
def test_sessions_that_end_by_themselves_are_not(given: dict[str, Any]):
    assert not found(**given)


def test_signals_that_agree_are_surer():
    (one,), (two,) = found(busiest=300), found(busiest=300, loops=1.0)
    assert two.confidence_permille > one.confidence_permille


def test_limits_are_made_from_what_its_sessions_usually_take():
    (finding,) = found(busiest=300, tokens=600_000)
    create, name = finding.levers[0].edits
    assert (create.noun, create.create, name.changes) == ("session-limits", True, {"session_limits": create.key})
    # Twice the 8 calls that 99 of 100 stay below, of 2,000 tokens each.
    assert create.changes["max_iterations"] == pytest.approx(16, abs=1)
    assert create.changes["max_repeated_calls"] == 3
    assert create.changes["max_tokens"] == pytest.approx(32_000, rel=0.1)


def test_where_nothing_is_known_the_seeds_loop_is_the_ceiling():
    (finding,) = found(busiest=300, calls=3.0, known=False)
    assert finding.levers[0].edits[0].changes["max_iterations"] == 15


def test_limits_that_hold_are_only_tightened():
    (finding,) = found(limited(max_iterations=5, max_tokens=10_000_000), busiest=300, tokens=600_000)
    (edit,) = finding.levers[0].edits
    assert (edit.noun, edit.key) == ("session-limits", "agents")
    assert edit.changes.keys() == {"max_tokens", "max_repeated_calls"}


def test_where_others_name_the_same_limits_the_tenant_gets_its_own():
    of = limited(max_depth=3)
    of = helpers.fleet(
        tenants=[*of.tenants.values(), helpers.tenant("globex", session_limits="agents")],
        session_limits=of.session_limits.values(),
    )
    (finding,) = found(of, busiest=300)
    create, name = finding.levers[0].edits
    assert create.create
    assert create.changes["max_depth"] == 3
    assert (name.noun, name.key) == ("tenants", "acme")


def test_tight_limits_need_no_edit():
    (finding,) = found(limited(max_iterations=1, max_tokens=1, max_repeated_calls=2), loops=1.0)
    assert not finding.levers[0].edits
    assert finding.levers[0].advice


@pytest.mark.django_db
def test_its_levers_can_be_applied(stored: None):
    kit.dry_run(found(busiest=300)[0])
    with unit_of_work(SYSTEM, "for a test") as unit:
        SESSION_LIMITS.create(unit, "agents", {"max_tokens": 10_000_000})
        TENANTS.update(unit, "acme", {"session_limits": "agents"})
    kit.dry_run(found(limited(max_tokens=10_000_000), busiest=300)[0])


@given(loops=st.floats(0, 1000), busiest=st.floats(0, 1000), more=st.floats(0, 1000))
def test_more_loops_never_clear_it(loops: float, busiest: float, more: float):
    def judged(loops: float) -> list[Finding]:
        answers = helpers.readings(DETECTOR, loops=[(ACME, loops)], busiest=[(ACME, busiest)])
        return list(DETECTOR.judge(answers, helpers.fleet()))

    if judged(loops):
        assert judged(loops + more)
