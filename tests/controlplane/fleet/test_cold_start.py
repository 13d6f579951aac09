from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from controlplane.fleet.cold_start import cold_start, total_ms
from controlplane.fleet.services import take_report
from tests.controlplane.fleet.conftest import MODEL
from wire.messages import EngineReport, NodeReport

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_each_phase_stands_beside_its_budget_and_what_took_too_long_is_named():
    told = {"load_model": 15_000, "init_engine": 80_000, "capture_graphs": 21_000}
    found = cold_start(told, {"init_engine": 60_000, "load_model": 15_000, "total": 90_000, "torch_compile": 1})
    assert found["over"] == ["init_engine", "total"]
    assert found["phases"] == [
        {"phase": "capture_graphs", "took_ms": 21_000, "budget_ms": None, "over": None},
        {"phase": "init_engine", "took_ms": 80_000, "budget_ms": 60_000, "over": True},
        {"phase": "load_model", "took_ms": 15_000, "budget_ms": 15_000, "over": False},
        {"phase": "torch_compile", "took_ms": None, "budget_ms": 1, "over": None},
        {"phase": "total", "took_ms": 95_000, "budget_ms": 90_000, "over": True},
    ]


def test_a_start_of_which_nothing_is_told_is_not_known_to_keep_its_budget():
    found = cold_start({}, {"total": 1})
    assert (found["over"], found["phases"][0]["over"]) == ([], None)


def test_what_the_engine_says_of_the_whole_goes_before_a_sum():
    assert total_ms({"total": 5, "load_model": 1, "init_engine": 1}) == 5
    assert total_ms({"load_model": 1}) is None


PHASES = st.dictionaries(
    st.sampled_from(["load_model", "init_engine", "total", "x"]), st.integers(min_value=0, max_value=9)
)


@given(PHASES, PHASES)
def test_what_is_over_was_told_and_has_a_budget(told, budget):
    found = cold_start(told, budget)
    by_name = {phase["phase"]: phase for phase in found["phases"]}
    assert by_name.keys() >= told.keys() | budget.keys()
    for name in found["over"]:
        assert by_name[name]["took_ms"] > by_name[name]["budget_ms"]


def test_an_engine_shows_its_start_beside_the_budget_of_its_model(fleet):
    fleet.patch(f"/models/{MODEL}", {"cold_start_budget_ms": {"load": 4000}})
    report = EngineReport("e1", "up", start_phases_ms={"load": 4200})
    take_report("n1", NodeReport("1", engines=[report]), NOW)
    for shown in (fleet.get("/engines/e1").json(), fleet.get("/engines").json()["items"][0]):
        assert shown["cold_start"]["over"] == ["load"]
        assert shown["start_phases_ms"] == {"load": 4200}
