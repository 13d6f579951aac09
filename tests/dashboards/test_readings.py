from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from controlplane.telemetry import query
from controlplane.telemetry.promql.errors import TimedOut
from dashboards import readings
from dashboards.asked import Asked
from dashboards.charts import CHARTS
from dashboards.spans import SPANS
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
