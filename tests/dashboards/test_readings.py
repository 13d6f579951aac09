from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from controlplane.telemetry import query
from controlplane.telemetry.promql.errors import TimedOut, TooMuch
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.recording.builtin import builtin
from controlplane.telemetry.store.writer import Owner
from dashboards import readings
from dashboards.charts import CHARTS, LAYERS, Only
from dashboards.charts.engines import ENGINES
from dashboards.charts.rows import Hosts
from dashboards.charts.statuses import CAPACITY, LIMITS
from dashboards.lines import Line, folded
from dashboards.spans import SPANS, Span
from gateway.refusals import REASONS
from tests.controlplane.telemetry.filling import named, store
from tests.dashboards import fleet
from wire.write_body import Series

SPAN = SPANS["1h"]
NOON_MS = 1_764_504_000_000


@pytest.fixture(autouse=True)
def _no_refusal_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "_refused", {})


def an_hour(fill: Callable[[Iterable[Series]], None]) -> Mapping[str, list[Line]]:
    """The lines of all charts, of an hour of a small fleet."""
    times_ms = range(NOON_MS - 4_000_000, NOON_MS + 1, 15_000)
    fill([*fleet.gateway_series("edge-1", times_ms), *fleet.node_series("n-1", "chat", times_ms)])
    return lines_of(SPAN, SPAN.first_ms(NOON_MS))


def lines_of(span: Span, first_ms: int, only: Only = (), hosts: Hosts = ()) -> Mapping[str, list[Line]]:
    found: dict[str, list[Line]] = {}
    for layer in LAYERS:
        reading = readings.read(layer, only, span, first_ms, NOON_MS, hosts)
        assert reading.refused == {}
        found |= {chart.name: folded(chart, reading.lines[chart.name]) for chart in layer.charts}
    return found


def test_every_chart_has_an_answer_from_what_gateways_and_agents_push(
    fill: Callable[[Iterable[Series]], None],
) -> None:
    charts = an_hour(fill)
    for chart in CHARTS:
        assert {line.query for line in charts[chart.name]} == set(chart.queries), chart.name
        assert all(None not in line.values for line in charts[chart.name]), chart.name


def test_the_numbers_are_those_of_the_fleet(fill: Callable[[Iterable[Series]], None]) -> None:
    an_hour(fill)
    charts = lines_of(SPAN, SPAN.first_ms(NOON_MS), (("pool", "chat"),), ("n-1",))
    assert {line.name for line in charts["tokens"]} == {"search", "support-bot"}
    assert {line.name for line in charts["requests"]} >= {"ok", "failed · engine_lost", "refused · tpm_limit"}
    assert {line.name for line in charts["over_limits"]} == {"tpm_limit"}
    assert {line.name for line in charts["no_capacity"]} == {"queue_full", "queue_timeout"}
    [temperature] = charts["temperature"]
    assert len(temperature.notes[0].split()) == fleet.GPUS
    [kv] = charts["kv"]
    assert all(40 < (value or 0) < 100 for value in kv.values)
    p95, p50, p99 = charts["ttft"]
    steps = zip(p50.values, p95.values, p99.values, strict=True)
    assert all((low or 0) < (high or 0) < (highest or 0) for low, high, highest in steps)


@pytest.mark.parametrize(
    ("only", "chart", "names"),
    [
        (("pool", "chat"), "ttft", {"chat"}),
        (("tenant", "search"), "tokens", {"search"}),
        (("node", "n-2"), "kv", {"n-2-vllm"}),
        (("node", "n-2"), "power", {"n-2"}),
        # Its series know no nodes: all of them are shown, and the page says so.
        (("node", "n-2"), "tokens", {"search", "support-bot", "nightly"}),
    ],
)
def test_a_choice_leaves_lines_that_know_nothing_of_it(
    fill: Callable[[Iterable[Series]], None], only: tuple[str, str], chart: str, names: set[str]
) -> None:
    fill(fleet.node_series("n-2", "chat", range(NOON_MS - 600_000, NOON_MS + 1, 15_000)))
    an_hour(fill)
    assert {line.name for line in lines_of(SPAN, NOON_MS, (only,))[chart]} == names


def test_charts_of_gpus_follow_a_pool_by_the_nodes_of_its_engines(fill: Callable[[Iterable[Series]], None]) -> None:
    """A name is a name, whatever a regular expression would make of it."""
    for node in ("n.2", "n-2", "n+3"):
        fill(fleet.node_series(node, "chat", range(NOON_MS - 600_000, NOON_MS + 1, 15_000)))
    an_hour(fill)

    def names(*hosts: str, node: str = "") -> dict[str, set[str]]:
        only = (("pool", "chat"), *([("node", node)] if node else []))
        found = lines_of(SPAN, NOON_MS, only, hosts)
        return {chart: {line.name for line in found[chart]} for chart in ("compute", "vram", "temperature", "xids")}

    assert set(map(frozenset, names("n.2", "n+3").values())) == {frozenset({"n.2", "n+3"})}
    assert set(map(frozenset, names("n.2", "n+3", node="n.2").values())) == {frozenset({"n.2"})}
    assert not any(names("n.2", node="n-1").values())
    assert not any(names().values())
    # As many as a large fleet has.
    many = [f"gpu-node-{number:03}.rack-7.site-3" for number in range(200)]
    assert set(map(frozenset, names("n.2", *many).values())) == {frozenset({"n.2"})}


# What the small fleet has of each.
REAL = {"pool": "chat", "tenant": "search", "node": "n-1"}


def test_a_choice_reaches_every_query_of_a_chart_that_takes_it(fill: Callable[[Iterable[Series]], None]) -> None:
    an_hour(fill)
    for label, real in REAL.items():
        chosen, nothing = (lines_of(SPAN, NOON_MS, ((label, value),)) for value in (real, "nothing"))
        for chart in CHARTS:
            if label in chart.takes:
                assert nothing[chart.name] == [], (chart.name, label)
                # The fleet's Triton is of a pool of its own.
                assert chosen[chart.name] or chart.name.startswith("triton_"), (chart.name, label)


def test_over_days_a_choice_reaches_every_query_that_takes_it(recorded_since_ms: int) -> None:
    span = SPANS["24h"]
    for label, real in REAL.items():
        chosen, nothing = (lines_of(span, NOON_MS, ((label, value),)) for value in (real, "nothing"))
        for chart in (each for each in CHARTS if each.is_recorded):
            if label in chart.labels_over(span):
                assert nothing[chart.name] == [], (chart.name, label)
                assert chosen[chart.name], (chart.name, label)


def test_a_name_of_quotes_and_signs_chooses_what_bears_it(fill: Callable[[Iterable[Series]], None]) -> None:
    odd = 'a"b\\c}ğ$only'
    samples = [(NOON_MS - 3_000, 61.0)]
    fill([named("DCGM_FI_DEV_GPU_TEMP", samples, node=node, gpu="0") for node in ("n-1", odd)])
    assert [line.name for line in lines_of(SPAN, NOON_MS, (("node", odd),))["temperature"]] == [odd]


def record(fill: Callable[[Iterable[Series]], None], times_ms: Iterable[int]) -> None:
    """What the built-in rules make of the store at these moments."""
    for at_ms in times_ms:
        for rule in (rule for group in builtin()["groups"] for rule in group["rules"]):
            samples = query.instant(rule["expr"], at_ms)
            labels = {**rule.get("labels", {}), "__name__": rule["record"]}
            fill(Series({**each.labels, **labels}, [(at_ms, each.value)]) for each in samples)


RECORDED_SINCE_MS = NOON_MS - 11 * 60_000


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory whose rules have recorded what a small fleet pushes, each minute from then on until noon."""
    folder = tmp_path_factory.mktemp("recorded")
    times_ms = range(RECORDED_SINCE_MS - 300_000, NOON_MS + 1, 15_000)
    with override_settings(DATA_DIR=folder):

        def fill(series: Iterable[Series]) -> None:
            store(store_path(), series, Owner("gateway", "edge-1"))

        fill([*fleet.gateway_series("edge-1", times_ms), *fleet.node_series("n-1", "chat", times_ms)])
        record(fill, range(RECORDED_SINCE_MS, NOON_MS + 1, 60_000))
    return folder


@pytest.fixture
def recorded_since_ms(recorded: Path, settings: Any) -> int:
    settings.DATA_DIR = recorded
    return RECORDED_SINCE_MS


@pytest.mark.parametrize("name", ["24h", "7d"])
def test_over_days_every_chart_has_an_answer_from_recorded_series_and_none_before(
    recorded_since_ms: int, name: str
) -> None:
    span = SPANS[name]
    first_ms = span.first_ms(NOON_MS)
    charts = lines_of(span, first_ms)
    for chart in CHARTS:
        lines = charts[chart.name]
        assert {line.query for line in lines} == {query for query in chart.queries if query.recorded}, chart.name
        for line in lines:
            times_ms = range(first_ms, NOON_MS + 1, span.step_ms)
            measured = [at_ms for at_ms, value in zip(times_ms, line.values, strict=True) if value is not None]
            assert measured == [at_ms for at_ms in times_ms if at_ms >= recorded_since_ms], chart.name


def test_over_days_means_are_those_of_the_raw_series(recorded_since_ms: int) -> None:
    span = SPANS["24h"]
    raw = replace(span, is_recorded=False)
    for name in ("tokens", "requests", "engine_time", "compute", "power"):
        of_rules = newest(span, name)
        of_samples = newest(raw, name)
        assert of_rules == pytest.approx(of_samples, rel=0.05), name
    assert newest(span, "queue")["chat|dotted"] == pytest.approx(newest(raw, "queue")["chat|dotted"], rel=0.05)


def test_over_days_nothing_that_was_high_is_lost(recorded_since_ms: int) -> None:
    span = SPANS["24h"]
    for name, metric in (
        ("kv", "100 * headworks_engine_kv_cache_usage_ratio"),
        ("temperature", "DCGM_FI_DEV_GPU_TEMP"),
    ):
        [series] = query.range_(f"max({metric})", NOON_MS - 9 * 60_000, NOON_MS, 60_000)
        [peak] = newest(span, name).values()
        assert peak == max(series.values), name


def newest(span: Span, name: str) -> dict[str, float | None]:
    """The value at noon of each line of a chart."""
    return {line.key: line.values[-1] for line in lines_of(span, NOON_MS)[name]}


def test_charts_of_days_ask_for_nothing_but_what_the_rules_record() -> None:
    recorded = {rule["record"] for group in builtin()["groups"] for rule in group["rules"]}
    for chart in CHARTS:
        for each in (every for every in chart.queries if every.recorded):
            asked = set(re.findall(r"\w+:\w+:\w+", each.recorded))
            assert asked, chart.name
            assert asked <= recorded, chart.name
            assert not re.search(r"(?<![\w:])(headworks|DCGM)_", each.recorded), chart.name


@pytest.mark.parametrize(("chart", "name"), [("compute", "GPU_UTIL"), ("power", "POWER_USAGE")])
def test_a_gpu_that_is_busy_half_of_the_time_is_drawn_half_busy(
    fill: Callable[[Iterable[Series]], None], chart: str, name: str
) -> None:
    times_ms = range(NOON_MS - 4_000_000, NOON_MS + 1, 15_000)
    jumping = [(at_ms, 100.0 * (number % 2)) for number, at_ms in enumerate(times_ms)]
    fill([Series({"__name__": f"DCGM_FI_DEV_{name}", "node": "n-1", "gpu": "0"}, jumping)])
    [line] = lines_of(SPAN, SPAN.first_ms(NOON_MS))[chart]
    assert set(line.values) == {50.0}


def test_an_engine_that_moved_to_another_node_stays_one_line(fill: Callable[[Iterable[Series]], None]) -> None:
    moved_ms = NOON_MS - 1_800_000
    spans_ms = {"n-1": range(NOON_MS - 4_000_000, moved_ms, 15_000), "n-2": range(moved_ms, NOON_MS + 1, 15_000)}
    kv = "headworks_engine_kv_cache_usage_ratio"
    fill(
        named(kv, [(at_ms, level) for at_ms in times_ms], node=node, pool="chat", engine="llama-a")
        for level, (node, times_ms) in zip((0.2, 0.6), spans_ms.items(), strict=True)
    )
    [line] = lines_of(SPAN, SPAN.first_ms(NOON_MS))["kv"]
    assert (line.name, line.values[0], line.values[-1], None in line.values) == ("llama-a", 20.0, 60.0, False)


def test_a_chart_that_is_refused_leaves_the_others_and_is_said_once(
    own_store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    original = query.range_

    def refuse_temperature(promql: str, *arguments: Any, **shared: Any) -> Any:
        if "GPU_TEMP" in promql and arguments[2] == SPAN.step_ms:
            raise TimedOut("too many queries at once")
        return original(promql, *arguments, **shared)

    monkeypatch.setattr(readings, "range_", refuse_temperature)
    with caplog.at_level(logging.INFO, "dashboards.readings"):
        reading = readings.read(ENGINES, (), SPAN, NOON_MS, NOON_MS)
        readings.read(ENGINES, (), SPAN, NOON_MS, NOON_MS)
        assert reading.refused == {"temperature": "too many queries at once"}
        assert "kv" in reading.lines
        # Another span, and another page, do better meanwhile, which tells nothing of this one.
        readings.read(ENGINES, (), SPANS["15m"], NOON_MS, NOON_MS)
        readings.read(LAYERS[0], (), SPAN, NOON_MS, NOON_MS)
        readings.read(ENGINES, (), SPAN, NOON_MS, NOON_MS)
        monkeypatch.setattr(readings, "range_", original)
        readings.read(ENGINES, (), SPAN, NOON_MS, NOON_MS)
    assert [record.message for record in caplog.records] == [
        "charts of engines, 1h without an answer: temperature: too many queries at once",
        "all charts of engines, 1h are answered again",
    ]


def test_a_time_that_has_ended_is_asked_anew_where_a_chart_was_refused(
    fill: Callable[[Iterable[Series]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuse(promql: str, *_arguments: Any, **_shared: Any) -> Any:
        asked.append(promql)
        raise TooMuch("too many queries at once")

    monkeypatch.setattr(readings, "range_", refuse)
    span, layer = SPANS["15m"], LAYERS[0]
    newest_ms = span.newest_ms(readings.now_ms())
    for last_ms, times in ((newest_ms - 600_000, 2), (newest_ms + span.step_ms, 1)):
        asked.clear()
        for _viewer in range(2):
            readings.reading_of(layer, (), span, last_ms - 60_000, last_ms, ())
        assert asked.count(layer.charts[0].queries[0].over(span)) == times


def test_the_reasons_of_each_status_are_those_of_gateways() -> None:
    for status, reasons in ((429, LIMITS), (503, CAPACITY)):
        assert set(reasons) == {name for name, row in REASONS.items() if row.status == status}
