"""Row 18: engines that take minutes to start."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.fields import iso
from controlplane.diagnosis.detector import Command, Finding, Fleet
from controlplane.diagnosis.detectors.cold_start import ColdStart
from controlplane.fleet.cold_start import cold_start
from tests.controlplane.diagnosis import helpers
from tests.controlplane.diagnosis.detectors import kit
from tests.controlplane.diagnosis.helpers import counter, gauge

DETECTOR = ColdStart()
MANIFEST = "ab" * 32
SLOW = {"load_weights": 200_000, "load_model": 210_000, "init_engine": 40_000}


def started(
    name: str = "e1", phases: dict[str, int] | None = None, ago: timedelta = timedelta(minutes=5), **more: Any
) -> Any:
    """An engine that began then, with what its phases took in ms beside this budget."""
    took, budget = SLOW if phases is None else phases, more.pop("budget", {})
    told: Any = {"start_phases_ms": took, "cold_start": cold_start(took, budget)}
    return helpers.engine(name, started_at=iso(helpers.AT - ago), **told, **more)


def of(*engines: Any, model: dict[str, Any] | None = None, **more: Any) -> Fleet:
    pool = helpers.pool(engines=tuple(engine["name"] for engine in engines))
    return helpers.fleet([pool], engines=engines, models=[helpers.model(**(model or {}))], **more)


def found(fleet: Fleet, series: Any = ()) -> list[Finding]:
    return helpers.judged(DETECTOR, list(series), fleet)


def keyed(finding: Finding) -> dict[str, Any]:
    return {lever.key: lever for lever in finding.levers}


def test_a_start_beyond_its_budget_is_found_by_its_phases():
    (finding,) = found(of(started(budget={"load_weights": 60_000, "total": 120_000})))
    assert finding.subject == "pool/chat"
    evidence = {part.name: part for part in finding.evidence}
    assert (evidence["load_weights_of_e1"].value, evidence["load_weights_of_e1"].limit) == (200, 60)
    assert (evidence["total_of_e1"].value, evidence["total_of_e1"].limit) == (250, 120)


def test_without_a_budget_minutes_are_too_long_and_that_is_less_sure():
    (finding,) = found(of(started()))
    (budgeted,) = found(of(started(budget={"total": 120_000})))
    assert finding.confidence_permille < budgeted.confidence_permille
    assert not found(of(started(phases={"load_model": 20_000, "init_engine": 30_000})))


@pytest.mark.parametrize(
    "engine",
    [
        started(ago=timedelta(hours=2)),
        # It does not say when it began, or how long its phases took.
        helpers.engine(),
        started(phases={}),
        started(phases={"load_weights": 200_000}),
        started(budget={"total": 600_000, "load_model": 600_000}),
    ],
)
def test_what_is_long_past_unknown_or_within_its_budget_is_not(engine: Any):
    assert not found(of(engine))


def short() -> list[Any]:
    return [gauge("headworks_gateway_queue_length", 12, gateway="g1", pool="chat")]


def down(severity: str) -> Any:
    return helpers.event("engine_down", "e2", severity=severity, detail="engine e2 is dead")


@pytest.mark.parametrize(
    ("engine", "events", "is_found"),
    [
        (helpers.engine("e2", state="starting"), [], True),
        # Its restart was asked for.
        (helpers.engine("e2", state="down"), [down("warning")], True),
        # It died, or is back: short for another reason, rows 1 to 10.
        (helpers.engine("e2", state="down"), [down("critical")], False),
        (helpers.engine("e2", state="down"), [down("warning"), down("critical")], False),
        (helpers.engine("e2"), [down("warning")], False),
    ],
)
def test_a_pool_that_is_short_while_an_engine_starts_is_found(engine: Any, events: list[Any], is_found: bool):
    findings = found(of(helpers.engine(), engine, events=events), short())
    assert bool(findings) == is_found
    assert all({part.name for part in each.evidence} == {"queue"} for each in findings)


def test_weights_on_the_network_are_fetched_to_the_nodes_disk():
    node = helpers.node(allowed_acts={"": ["fetch_model"]})
    files = {"manifest": MANIFEST, "files_folder": "/srv/models/llama"}
    network = gauge("headworks_engine_model_bytes", 140e9, engine="e1", place="network", filesystem="nfs4")
    fleet = of(started(), model=files, nodes=[node])
    (finding,) = found(fleet, [network])
    lever = keyed(finding)["local_files"]
    assert lever.commands == (Command("node/n1", "fetch_model", {"manifest": MANIFEST, "folder": "/srv/models/llama"}),)
    assert "130.4 GiB" in str(lever.why)
    kit.check([finding], fleet)


def test_spares_are_as_many_as_the_hours_peak_needs_beyond_now():
    peak = gauge("pool:headworks_gateway_generation_tokens:rate1m", 900, pool="chat")
    now = counter("headworks_gateway_generation_tokens_total", 300.0, pool="chat", tenant="acme")
    (finding,) = found(of(started(), helpers.engine("e2")), [peak, now])
    # Two engines make 300 tokens a second; 900 take four more.
    assert "keep warm: 4;" in str(keyed(finding)["warm_spare"].advice)
    assert "keep warm: 1;" in str(keyed(found(of(started()))[0])["warm_spare"].advice)


def test_a_budget_is_what_the_fastest_start_has_shown():
    fast = {"load_model": 40_000, "init_engine": 20_000}
    (finding,) = found(of(started(), started("e2", fast)))
    (edit,) = keyed(finding)["budget"].edits
    assert edit.changes == {"cold_start_budget_ms": {"load_model": 50_000, "init_engine": 25_000, "total": 75_000}}
    (promised,) = found(of(started(), started("e2", fast), model={"cold_start_budget_ms": {"total": 1}}))
    assert "budget" not in keyed(promised)


@pytest.mark.django_db
def test_its_levers_can_be_applied(stored: None):
    kit.dry_run(found(of(started(), started("e2", {"load_model": 40_000, "init_engine": 20_000})))[0])


@given(took=st.integers(0, 10**7), more=st.integers(0, 10**7))
def test_a_longer_start_never_clears_it(took: int, more: int):
    def judged(took: int) -> list[Finding]:
        return found(of(started(phases={"load_model": took, "init_engine": 1}, budget={"load_model": 60_000})))

    if judged(took):
        assert judged(took + more)
