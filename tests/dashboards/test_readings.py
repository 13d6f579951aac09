from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from controlplane.telemetry import query
from controlplane.telemetry.promql.errors import TimedOut
from controlplane.telemetry.recording.builtin import builtin
from dashboards import readings
from dashboards.asked import Asked
from dashboards.charts import CHARTS
from dashboards.spans import SPANS, Span
from tests.controlplane.telemetry.filling import named
from tests.dashboards import fleet
from wire.write_body import Series

SPAN = SPANS["1h"]
NOON_MS = 1_764_504_000_000
CHART = {chart.name: chart for chart in CHARTS}


@pytest.fixture(autouse=True)
def _no_refusal_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "_refused", {})


def an_hour(fill: Callable[[Iterable[Series]], None]) -> readings.Reading:
    times_ms = range(NOON_MS - 4_000_000, NOON_MS + 1, 15_000)
    fill([*fleet.gateway_series("edge-1", times_ms), *fleet.node_series("n-1", "chat", times_ms)])
    return readings.read(SPAN, SPAN.first_ms(NOON_MS), NOON_MS)


def test_every_chart_has_an_answer_from_what_gateways_and_agents_push(
    fill: Callable[[Iterable[Series]], None],
) -> None:
    reading = an_hour(fill)
    assert reading.refused == {}
    for chart in CHARTS:
        lines = Asked(SPAN).lines(reading, chart)
        assert lines, chart.name
        assert all(None not in line.values for line in lines), chart.name


def test_the_numbers_are_those_of_the_fleet(fill: Callable[[Iterable[Series]], None]) -> None:
    reading = an_hour(fill)
    charts = {chart.name: Asked(SPAN, (("pool", "chat"),)).lines(reading, chart) for chart in CHARTS}
    assert {line.name for line in charts["tokens"]} == {"search", "support-bot"}
    assert {line.name for line in charts["requests"]} == {"ok", "failed · engine_lost", "refused · tpm_limit"}
    [temperature] = charts["temperature"]
    assert len(temperature.notes[0].split()) == fleet.GPUS
    [kv] = charts["kv"]
    assert all(40 < (value or 0) < 100 for value in kv.values)
    p95, p50 = charts["ttft"]
    assert all((high or 0) > (low or 0) for high, low in zip(p95.values, p50.values, strict=True))


def record(fill: Callable[[Iterable[Series]], None], times_ms: Iterable[int]) -> None:
    """What the built-in rules make of the store at these moments."""
    for at_ms in times_ms:
        for rule in (rule for group in builtin()["groups"] for rule in group["rules"]):
            samples = query.instant(rule["expr"], at_ms)
            fill(Series({**each.labels, "__name__": rule["record"]}, [(at_ms, each.value)]) for each in samples)


@pytest.fixture
def recorded_since_ms(fill: Callable[[Iterable[Series]], None]) -> int:
    """Rules have recorded what a small fleet pushes from then on, each minute until noon."""
    since_ms = NOON_MS - 11 * 60_000
    times_ms = range(since_ms - 600_000, NOON_MS + 1, 15_000)
    fill([*fleet.gateway_series("edge-1", times_ms), *fleet.node_series("n-1", "chat", times_ms)])
    record(fill, range(since_ms, NOON_MS + 1, 60_000))
    return since_ms


@pytest.mark.parametrize("name", ["24h", "7d"])
def test_over_days_every_chart_has_an_answer_from_recorded_series_and_none_before(
    fill: Callable[[Iterable[Series]], None], recorded_since_ms: int, name: str
) -> None:
    span = SPANS[name]
    reading = readings.read(span, span.first_ms(NOON_MS), NOON_MS)
    assert reading.refused == {}
    for chart in CHARTS:
        lines = Asked(span).lines(reading, chart)
        assert len({line.query for line in lines}) == len(chart.queries), chart.name
        for line in lines:
            measured = [at_ms for at_ms, value in zip(reading.times_ms, line.values, strict=True) if value is not None]
            assert measured == [at_ms for at_ms in reading.times_ms if at_ms >= recorded_since_ms], chart.name


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
    reading = readings.read(span, NOON_MS, NOON_MS)
    return {line.key: line.values[-1] for line in Asked(span).lines(reading, CHART[name])}


def test_charts_of_days_ask_for_nothing_but_what_the_rules_record() -> None:
    recorded = {rule["record"] for group in builtin()["groups"] for rule in group["rules"]}
    for chart in CHARTS:
        for each in chart.queries:
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
    [line] = Asked(SPAN).lines(readings.read(SPAN, SPAN.first_ms(NOON_MS), NOON_MS), CHART[chart])
    assert set(line.values) == {50.0}


def test_an_engine_that_moved_to_another_node_stays_one_line(fill: Callable[[Iterable[Series]], None]) -> None:
    moved_ms = NOON_MS - 1_800_000
    spans_ms = {"n-1": range(NOON_MS - 4_000_000, moved_ms, 15_000), "n-2": range(moved_ms, NOON_MS + 1, 15_000)}
    kv = "headworks_engine_kv_cache_usage_ratio"
    fill(
        named(kv, [(at_ms, level) for at_ms in times_ms], node=node, pool="chat", engine="llama-a")
        for level, (node, times_ms) in zip((0.2, 0.6), spans_ms.items(), strict=True)
    )
    [line] = Asked(SPAN).lines(readings.read(SPAN, SPAN.first_ms(NOON_MS), NOON_MS), CHART["kv"])
    assert (line.name, line.values[0], line.values[-1], None in line.values) == ("llama-a", 20.0, 60.0, False)


def test_a_chart_that_is_refused_leaves_the_others_and_is_said_once(
    fill: Callable[[Iterable[Series]], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    original = query.range_

    def refuse_temperature(promql: str, *arguments: Any) -> Any:
        if "GPU_TEMP" in promql and arguments[2] == SPAN.step_ms:
            raise TimedOut("too many queries at once")
        return original(promql, *arguments)

    monkeypatch.setattr(readings, "range_", refuse_temperature)
    with caplog.at_level(logging.INFO, "dashboards.readings"):
        reading = an_hour(fill)
        readings.read(SPAN, NOON_MS, NOON_MS)
        assert reading.refused == {"temperature": "too many queries at once"}
        assert reading.lines["kv"]
        # Another span does better meanwhile, which tells nothing of this one.
        readings.read(SPANS["15m"], NOON_MS, NOON_MS)
        readings.read(SPAN, NOON_MS, NOON_MS)
        monkeypatch.setattr(readings, "range_", original)
        readings.read(SPAN, NOON_MS, NOON_MS)
    assert [record.message for record in caplog.records] == [
        "charts of 1h without an answer: temperature: too many queries at once",
        "all charts of 1h are answered again",
    ]
