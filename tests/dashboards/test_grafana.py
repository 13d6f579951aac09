"""Boards of Grafana against the Prometheus API that they ask."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import promql_parser
import pytest
from django.test import Client
from django.utils import translation

from dashboards import grafana
from dashboards.charts import FILTERS, LAYERS
from dashboards.readings import now_ms
from tests.dashboards import fleet
from wire.write_body import Series

BOARDS = grafana.boards()
# What Grafana puts in the place of its variables: all, and two chosen names of which one has signs.
ALL = dict.fromkeys(FILTERS, ".*")
CHOSEN = {"pool": r"(chat|rerank|a\\.b)", "tenant": "(search)", "node": "(n-1)"}


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (panel for panel in board["panels"] if panel["type"] != "row")


def interpolated(expr: str, values: dict[str, str]) -> str:
    text = expr.replace("$__rate_interval", "1m0s")
    for name, value in values.items():
        text = text.replace(f"${name}", value)
    return text


@pytest.fixture
def api(viewer: Client, fill: Callable[[Iterable[Series]], None]) -> Callable[[str], list[Any]]:
    """Answers with the series of a range query, over ten minutes of a small fleet."""
    end_s = now_ms() // 1000
    times_ms = range((end_s - 700) * 1000, end_s * 1000, 15_000)
    fill([*fleet.gateway_series("edge-1", times_ms), *fleet.node_series("n-1", "chat", times_ms)])

    def ask(promql: str) -> list[Any]:
        asked = {"query": promql, "start": end_s - 300, "end": end_s, "step": 60}
        answer = viewer.post("/prometheus/api/v1/query_range", asked)
        assert answer.status_code == 200, (promql, answer.content)
        return list(answer.json()["data"]["result"])

    return ask


def test_the_embedded_store_answers_every_query_and_variable_of_every_board(
    viewer: Client, api: Callable[[str], list[Any]]
) -> None:
    of_fleet = {f"{layer.name}.json" for layer in LAYERS}
    for name, board in BOARDS.items():
        targets = [target for panel in panels(board) for target in panel["targets"]]
        for promql in {interpolated(each["expr"], values) for each in targets for values in (ALL, CHOSEN)}:
            assert "$" not in promql
            promql_parser.parse(promql)
            assert api(promql) or name not in of_fleet, promql
        for variable in (each for each in board["templating"]["list"] if each["type"] == "query"):
            [label] = re.findall(r"label_values\((\w+)\)", variable["query"]["query"])
            assert viewer.get(f"/prometheus/api/v1/label/{label}/values").json()["data"]


def test_a_board_has_the_variables_that_its_queries_name_and_no_others() -> None:
    for board in BOARDS.values():
        variables = {each["name"] for each in board["templating"]["list"]} - {"datasource"}
        named = {
            name
            for panel in panels(board)
            for target in panel["targets"]
            for name in re.findall(r"\$(\w+)", target["expr"])
        }
        assert named - {"__rate_interval"} == variables


def test_panels_stand_side_by_side_within_the_width_and_over_no_other() -> None:
    for board in BOARDS.values():
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
        taken: set[tuple[int, int]] = set()
        for panel in board["panels"]:
            place = panel["gridPos"]
            assert place["x"] + place["w"] <= 24
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not cells & taken, panel["title"]
            taken |= cells


def test_each_chart_is_a_panel_with_its_unit_and_gaps() -> None:
    for layer in grafana.BOARDS:
        found = list(panels(BOARDS[f"{layer.name}.json"]))
        assert [panel["title"] for panel in found] == [str(chart.title) for chart in layer.charts]
        for panel, chart in zip(found, layer.charts, strict=True):
            defaults = panel["fieldConfig"]["defaults"]
            assert defaults["unit"] == chart.unit.grafana
            assert defaults["custom"]["spanNulls"] is False
            assert len(panel["targets"]) == len(chart.queries)


def test_addresses_of_boards_are_short_enough_and_their_own() -> None:
    uids = [board["uid"] for board in BOARDS.values()]
    assert len(set(uids)) == len(uids)
    assert all(len(uid) <= 40 for uid in uids)


def test_boards_are_the_same_in_every_language() -> None:
    with translation.override("tr"):
        assert grafana.boards() == BOARDS
