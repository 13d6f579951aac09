"""What the benchmark of the diagnosis makes of what it saw, and that its rows can be injected at all."""

from __future__ import annotations

import time

import msgspec
import pytest

from bench.diagnosis import figures_of, line, matrix
from bench.support.lab.clients import Clients, Ended
from bench.support.lab.drill import Result
from bench.support.lab.plan import ENGINES, POOLS, TENANTS
from bench.support.lab.rows import BY_NAME, PATHOLOGIES
from controlplane.diagnosis.detectors.registry import DETECTORS
from simulator.gpu.state import healthy_machine
from simulator.pathologies.conditions import Conditions
from simulator.tokenizer import Words, train_tokenizer


def result(name: str, **fields: object) -> Result:
    return Result(name, **fields)  # type: ignore[arg-type]


def test_there_is_a_row_for_each_detector_in_its_order() -> None:
    assert [row.name for row in PATHOLOGIES] == [detector.name for detector in DETECTORS]
    assert len(BY_NAME) == 20


@pytest.mark.parametrize("row", PATHOLOGIES, ids=lambda row: row.name)
def test_a_row_names_what_there_is(row) -> None:
    assert set(row.arguments) | set(row.conditions) | set(row.deploys) | set(row.go_first) <= set(ENGINES)
    assert not set(row.tenants) & set(TENANTS)
    assert {kind.tenant for kind in row.traffic.values()} <= set(row.tenants)
    assert {key for noun, key, _ in row.edits if noun == "pools"} <= set(POOLS)
    for conditions in row.conditions.values():
        msgspec.convert({"conditions": conditions}, Conditions)
    assert row.goodput_percent is not None or row.but


@pytest.mark.parametrize("row", [row for row in PATHOLOGIES if row.gpus], ids=lambda row: row.name)
def test_what_happens_to_gpus_changes_them(row) -> None:
    for event in row.gpus:
        machine = healthy_machine(6)
        for index in event.gpus:
            event.what(machine, index)
        assert machine != healthy_machine(6)


def test_the_matrix_has_a_mark_for_what_was_found_and_none_for_what_was_not() -> None:
    seen = [
        result("kv_exhausted", found_seconds=12.0),
        result("queue_debt", others={"hardware": 3.0}),
    ]
    lines = matrix(seen).splitlines()
    assert [each.split() for each in lines[:3]] == [
        ["injected", "\\", "found", "1", "8", "20"],
        ["kv_exhausted", "1", ".", "."],
        ["queue_debt", ".", ".", "1"],
    ]


def test_figures_count_what_missed_its_target() -> None:
    good = {"found_seconds": 30.0, "lever": "x", "cleared_seconds": 9.0, "goodput_before": 1.0, "goodput_after": 0.96}
    seen = [
        result("kv_exhausted", **good),
        result("queue_debt", **{**good, "found_seconds": 61.0}),
        result("retry_storm", **{**good, "cleared_seconds": None, "goodput_after": 0.25}),
        result("ghost_work", others={"hardware": 3.0}, problem="RestError: no", load_a_core=4.0),
        result("hardware", **{**good, "goodput_after": 0.5}),
    ]
    figures = figures_of(seen, result("healthy", others={"sockets": 1.0}), 30)
    assert figures == {
        "injected": 5,
        "found": 4,
        "not_found_in_two_windows": 2,
        "others_found": 1,
        "levers_applied": 4,
        "levers_that_did_not_clear": 1,
        "goodput_not_returned": 1,
        "failed_drills": 1,
        "most_processes_a_core": 4.0,
        "found_on_a_healthy_day": 1,
    }


def test_a_line_says_what_was_found_beside_it() -> None:
    said = line(result("queue_debt", found_seconds=20.0, lever="queue", others={"hardware": 3.0}, goodput_before=1.0))
    assert "found 20 s" in said
    assert "not over" in said
    assert "also hardware 3 s" in said


def test_a_line_says_when_the_machine_had_too_much_else_to_do() -> None:
    assert "processes a core" not in line(result("queue_debt", load_a_core=1.2))
    assert "12 processes a core" in line(result("queue_debt", load_a_core=12.4))


def test_a_line_tells_how_much_was_answered_of_the_batch_that_is_no_part_of_goodput() -> None:
    endings = {"support": {"good": 3, "late": 1}, "nightly": {"good": 1, "503 shed": 4}}
    said = line(result("queue_debt", goodput_before=1.0, endings_after=endings))
    assert "; nightly 1 of 5" in said
    assert "support" not in said


def test_goodput_is_of_those_kinds_and_that_time_alone() -> None:
    clients = Clients("http://127.0.0.1:1", {}, Words(train_tokenizer()))
    now = time.monotonic()
    for kind, ending, age in (("a", "good", 5), ("a", "good", 15), ("a", "late", 5), ("b", "good", 5)):
        clients.ended.append(Ended(now - age, kind, ending))
    assert clients.goodput(now - 10, now, ["a"]) == 0.5
    assert clients.endings(now - 10, now, ["a", "b"]) == {"good": 2, "late": 1}
