"""The values of a chart as a file: as they are drawn, for people and for scripts."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import pytest
from django.test import Client

from controlplane.core.models import Role, User
from controlplane.telemetry.promql.errors import TooMuch
from dashboards import heat_reading, readings
from dashboards.charts import CHARTS
from dashboards.export import _head
from dashboards.lines import Line
from dashboards.readings import now_ms
from dashboards.shared import Shared
from tests.controlplane.conftest import Rest, rest_of  # noqa: F401
from tests.dashboards import fleet
from tests.dashboards.test_heat import ask as ask_heat
from tests.dashboards.test_heat import gpus
from tests.dashboards.test_routes import ask
from wire.write_body import Series

Fill = Callable[[Iterable[Series]], None]


def rows(answer: Any) -> list[list[str]]:
    assert answer.status_code == 200
    return list(csv.reader(io.StringIO(answer.content.decode())))


def test_the_values_are_those_that_are_drawn(viewer: Client, fill: Fill) -> None:
    end = now_ms() // 900_000 * 900
    fill(fleet.gateway_series("edge-1", range((end - 1_000) * 1000, end * 1000, 15_000)))
    time = f"?from={end - 900}&to={end}&pool=chat"
    drawn = ask(viewer, time)["figures"]["ttft"]["data"]
    answer = viewer.get(f"/dashboards/ttft.csv{time}")
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    assert answer["Content-Disposition"].startswith('attachment; filename="ttft-')
    head, *found = rows(answer)
    assert head == ["time", "unix_seconds", "chat p95 (s)", "chat p50 (s)", "chat p99 (s)"]
    assert [trace["name"] for trace in drawn] == ["chat p95", "chat p50", "chat p99"]
    for column, trace in enumerate(drawn, start=2):
        assert [int(row[1]) * 1000 for row in found] == trace["x"]
        assert [float(row[column]) if row[column] else None for row in found] == trace["y"]
        assert any(value is not None for value in trace["y"])
    assert all(datetime.fromisoformat(row[0]).timestamp() == int(row[1]) for row in found)


def test_a_script_takes_them_by_its_token(rest_of: Callable[[Role | None], Rest], own_store: object) -> None:  # noqa: F811
    script = rest_of(Role.VIEWER).client
    assert rows(script.get("/dashboards/ttft.csv?span=15m"))[0] == ["time", "unix_seconds"]
    assert Client().get("/dashboards/ttft.csv").status_code == 401
    assert Client(headers={"authorization": "Bearer hwt_none"}).get("/dashboards/ttft.csv").status_code == 401


def test_people_of_some_tenants_get_no_values_of_all(viewer: Client) -> None:
    User.objects.filter(username="vera").update(tenants=["acme"])
    assert viewer.get("/dashboards/ttft.csv").status_code == 403


def test_there_is_a_file_of_every_chart_and_of_no_other(viewer: Client) -> None:
    # A time that has ended is read once for all charts of a layer.
    end = now_ms() // 1000 - 600
    for chart in CHARTS:
        assert viewer.get(f"/dashboards/{chart.name}.csv?from={end - 60}&to={end}").status_code == 200
    assert viewer.get("/dashboards/weather.csv").status_code == 404


def test_a_store_that_does_not_answer_is_said(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_shared: object) -> None:
        raise TooMuch("too many samples")

    monkeypatch.setattr(readings, "range_", refuse)
    answer = viewer.get("/dashboards/ttft.csv")
    assert (answer.status_code, answer.content) == (503, b"the metric store did not answer: too many samples")


def test_a_name_is_no_formula_of_a_sheet() -> None:
    chart = CHARTS[0]
    line = Line("=HYPERLINK(1)", chart.queries[0], {}, ())
    assert _head(chart, line).startswith("'=HYPERLINK(1)")


def test_the_heat_map_s_values_are_those_that_are_drawn(viewer: Client, fill: Fill) -> None:
    now = now_ms()
    fill([*gpus("rack-1", 60.0, now), *gpus("rack-2", 70.0, now)])
    search = f"?from={now // 1000 - 600}&to={now // 1000 - 60}&node=rack-2"
    given = ask_heat(viewer, search)
    [drawn] = given["figure"]["data"]
    head, *found = rows(viewer.get(given["csv"]))
    assert head == ["time", "unix_seconds", "rack-2 · GPU 0 (°C)", "rack-2 · GPU 1 (°C)"]
    for column, values in enumerate(drawn["z"], start=2):
        assert [round(float(row[column])) if row[column] else None for row in found] == values
        assert any(value is not None for value in values)
    assert "heat=temperature" in given["csv"]
    assert viewer.get("/dashboards/heat.csv?heat=memory&span=15m").status_code == 200


def test_a_heat_map_that_was_not_answered_has_no_file(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise TooMuch("too many samples")

    monkeypatch.setattr(heat_reading, "range_", refuse)
    monkeypatch.setattr(heat_reading, "_heats", Shared(8))
    answer = viewer.get("/dashboards/heat.csv?span=1h")
    assert (answer.status_code, answer.content) == (503, b"the metric store did not answer: too many samples")
    assert Client().get("/dashboards/heat.csv").status_code == 401
