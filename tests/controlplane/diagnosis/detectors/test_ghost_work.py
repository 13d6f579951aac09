"""Row 11: engines that compute for clients who are gone, and which link does not tell them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.diagnosis.detector import Command, Finding, Fleet
from controlplane.diagnosis.detectors.ghost_work import GhostWork
from tests.controlplane.diagnosis import helpers
from tests.controlplane.diagnosis.detectors import kit
from tests.controlplane.diagnosis.helpers import counter, gauge, histogram

ENGINE: Any = {"engine": "e1", "pool": "chat"}
TENANT: Any = {"pool": "chat", "tenant": "acme", "priority_class": "interactive"}
DETECTOR = GhostWork()


def series(
    running: float = 12,
    held: float = 4,
    left: float = 0.5,
    made: float = 400,
    had: float = 200,
    late: float = 0,
    waited: float = 10,
) -> list[Any]:
    """Requests; clients that leave, tokens that the engine makes and that gateways had, all a second."""
    return [
        gauge("headworks_engine_requests_running", running, **ENGINE),
        gauge("headworks_engine_requests_waiting", 0, **ENGINE),
        gauge("headworks_gateway_engine_sequences", held, gateway="g1", **ENGINE),
        counter("headworks_gateway_requests_total", left, outcome="cancelled", reason="client_left", **TENANT),
        counter("headworks_gateway_requests_total", 5.0, outcome="ok", reason="none", **TENANT),
        counter("headworks_engine_generation_tokens_total", made, **ENGINE),
        counter("headworks_gateway_generation_tokens_total", had, **TENANT),
        counter("headworks_gateway_cancelled_tokens_total", 20.0, pool="chat", tenant="acme"),
        counter("headworks_gateway_body_write_seconds_total", waited * left, pool="chat", tenant="acme"),
        counter("headworks_gateway_tokens_after_cancel_total", 20.0 * late, pool="chat", tenant="acme"),
        *histogram("headworks_gateway_e2e_seconds", {8.0: 1.0, 30.0: 0.1}, **TENANT),
    ]


def of(*engines: str, allowed: tuple[str, ...] = ("drain", "restart", "pause", "resume")) -> Fleet:
    node = helpers.node(allowed_acts={engine: list(allowed) for engine in engines})
    return helpers.fleet([helpers.pool(engines=engines)], nodes=[node])


def found(fleet: Fleet | None = None, **given: Any) -> list[Finding]:
    return helpers.judged(DETECTOR, series(**given), fleet or of("e1", "e2"))


def test_more_than_gateways_hold_while_clients_leave_is_found_at_the_engine():
    (finding,) = found()
    assert (finding.subject, finding.pools, finding.tenants) == ("engine/e1", ("chat",), ("acme",))
    assert finding.confidence_permille >= 850
    evidence = {part.name: part for part in finding.evidence}
    assert evidence["ghosts"].value == 8
    assert evidence["left"].value == pytest.approx(60, rel=0.1)
    assert evidence["engine_tokens_beyond_gateways"].value == pytest.approx(0.5)


@pytest.mark.parametrize(
    "given",
    [
        # Gateways hold all that runs, n sequences of one request among it.
        {"held": 12},
        # A probe.
        {"running": 5},
        # Nobody left: somebody asks the engine without a gateway.
        {"left": 0.0},
    ],
)
def test_what_is_somebodys_is_no_ghost(given: Any):
    assert not found(**given)


def test_where_too_few_left_to_explain_it_less_is_sure():
    (sure,), (doubtful,) = found(), found(running=90, held=4, left=0.05)
    assert doubtful.confidence_permille < sure.confidence_permille


def test_an_engine_that_no_gateway_tells_of_is_not_known():
    known = [each for each in series() if each.labels["__name__"] != "headworks_gateway_engine_sequences"]
    assert not helpers.judged(DETECTOR, known, of("e1", "e2"))


def test_the_engine_is_drained_for_as_long_as_its_answers_take_and_restarted():
    (finding,) = found()
    levers = {lever.key: lever for lever in finding.levers}
    assert list(levers) == ["drain_and_restart", "abort", "mend_link"]
    drain, restart = levers["drain_and_restart"].commands
    assert drain == Command("engine/e1", "drain", {"limit_seconds": 600})
    assert restart == Command("engine/e1", "restart", {})
    assert [command.action for command in levers["abort"].commands] == ["pause", "resume"]
    kit.check([finding], of("e1", "e2"))


@pytest.mark.parametrize(("fleet", "keys"), [
    # The pool has no other engine.
    (of("e1"), ["abort", "mend_link"]),
    (of("e1", "e2", allowed=()), ["mend_link"]),
])  # fmt: skip
def test_only_what_the_node_would_do_is_offered(fleet: Fleet, keys: list[str]):
    (finding,) = found(fleet)
    assert [lever.key for lever in finding.levers] == keys


def test_tokens_that_nobody_took_tell_of_a_proxy_before_the_gateways():
    (finding,) = found(held=12, late=0.6)
    assert finding.subject == "pool/chat"
    assert {part.name: part for part in finding.evidence}["tokens_after_cancel"].value == pytest.approx(0.6)
    assert [lever.key for lever in finding.levers] == ["mend_proxy"]
    assert not found(held=12, late=0.3)
    # Tokens that a gateway without processor time came too late with.
    assert not found(held=12, late=0.6, waited=0.5)


@given(running=st.floats(0, 500), held=st.floats(0, 500), more=st.floats(0, 500))
def test_more_ghosts_never_clear_it(running: float, held: float, more: float):
    def judged(running: float) -> list[Finding]:
        answers = helpers.readings(DETECTOR, running=[(ENGINE, running)], held=[(ENGINE, held)],
                                   left=[({"pool": "chat", "tenant": "acme"}, 30.0)])  # fmt: skip
        return list(DETECTOR.judge(answers, of("e1", "e2")))

    if judged(running):
        assert judged(running + more)
