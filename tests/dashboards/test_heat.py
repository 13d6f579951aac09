"""The heat map of GPUs over time: rows, gaps, colours and words, and the callback that fills its card."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from django.test import Client
from django.utils import translation
from hypothesis import given
from hypothesis import strategies as st

from controlplane.fleet.models import Engine, Model, Node, Pool
from controlplane.telemetry.query import QueryError
from controlplane.telemetry.query import Series as Answer
from dashboards import heat_reading
from dashboards.heat import (
    BY_NAME,
    COLUMNS_MAX,
    MEASURES,
    Heat,
    Owner,
    Row,
    figure_of,
    highest_now,
    promql_of,
    rows_of,
    step_of,
)
from dashboards.shared import Shared
from dashboards.spans import SPANS, span_of
from wire.write_body import Series

PAGE = "/dashboards/engines/"
HOUR = SPANS["1h"]
TIMES = [60_000, 120_000, 180_000]
TEMPERATURE, THROTTLED = BY_NAME["temperature"], BY_NAME["throttled"]


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heat_reading, "_heats", Shared(8))


def answer(node: str, gpu: str, values: dict[int, float], **labels: str) -> Answer:
    named = {"node": node, **({"gpu": gpu} if gpu else {}), **labels}
    return Answer(named, list(values), list(values.values()))


def heat(rows: list[Row], measure: Any = TEMPERATURE, refused: str = "", span: Any = HOUR) -> Heat:
    return Heat(measure, span, 60, TIMES, rows, refused)


def test_gpus_stand_by_node_and_number_and_what_was_not_measured_is_a_gap() -> None:
    found = rows_of(
        TEMPERATURE,
        [
            answer("b", "0", {60_000: 50.0}),
            answer("a", "10", {60_000: 60.0, 180_000: 62.0}),
            answer("a", "2", {120_000: float("nan"), 180_000: 70.0}),
        ],
        TIMES,
    )
    assert [row.owner.name for row in found] == ["a · GPU 2", "a · GPU 10", "b · GPU 0"]
    assert [list(row.values) for row in found] == [[None, None, 70.0], [60.0, None, 62.0], [50.0, None, None]]
    figure = figure_of(heat(found))
    assert figure["data"][0]["z"][1] == [60, None, 62]
    assert figure["data"][0]["hoverongaps"] is False


def test_of_reasons_that_overlap_the_longest_is_shown_and_hovering_names_each() -> None:
    found = rows_of(
        THROTTLED,
        [
            answer("a", "0", {60_000: 0.2, 120_000: 0.0}, reason="sw_power_cap"),
            answer("a", "0", {60_000: 0.75, 120_000: 0.0}, reason="hw_thermal_slowdown"),
            answer("a", "1", {60_000: 0.5}, reason="something_new"),
        ],
        TIMES,
    )
    assert [list(row.values) for row in found] == [[75.0, 0.0, None], [50.0, None, None]]
    told = figure_of(heat(found, THROTTLED))["data"][0]["text"]
    assert told == [["heat (hardware) 75 %, power cap 20 %", "", ""], ["something_new 50 %", "", ""]]
    with translation.override("tr"):
        assert "ısı" in figure_of(heat(found, THROTTLED))["data"][0]["text"][0][0]


def test_nodes_are_named_once_in_the_middle_of_their_rows_with_a_line_between() -> None:
    rows = [Row(Owner(node, gpu), [50.0] * 3) for node in ("a", "b") for gpu in range(4)]
    layout = figure_of(heat(rows))["layout"]
    assert (layout["yaxis"]["tickvals"], layout["yaxis"]["ticktext"]) == ([1.5, 5.5], ["a", "b"])
    assert [shape["y0"] for shape in layout["shapes"]] == [3.5]


def test_four_hundred_rows_have_room_and_their_names_do_not_touch() -> None:
    rows = [Row(Owner(f"rack-{node:02}", gpu), [50.0] * 3) for node in range(50) for gpu in range(8)]
    layout = figure_of(heat(rows))["layout"]
    pixels = layout["meta"]["height"] / len(rows)
    assert pixels >= 3.5
    places = layout["yaxis"]["tickvals"]
    assert min(after - before for before, after in itertools.pairwise(places)) * pixels >= 15


def test_what_a_name_holds_is_not_read_as_tags() -> None:
    figure = figure_of(heat([Row(Owner("<b>x</b>", 0), [50.0] * 3)]))
    assert "<b>" not in figure["data"][0]["y"][0]
    assert "<b>" not in figure["layout"]["yaxis"]["ticktext"][0]


def test_the_legend_says_what_the_colours_stand_for() -> None:
    meta = figure_of(heat([Row(Owner("a", 0), [50.0] * 3)]))["layout"]["meta"]
    assert [step["text"] for step in meta["legend"]] == ["40", "50", "60", "70", "80", "90"]
    assert meta["unit"] == "°C"


@pytest.mark.parametrize(
    ("empty", "says"),
    [
        (heat([], refused="it <is> away"), "it &lt;is&gt; away"),
        (heat([]), "Does an agent run"),
        (heat([], THROTTLED, span=SPANS["7d"]), "not recorded"),
    ],
)
def test_an_empty_map_says_why(empty: Heat, says: str) -> None:
    figure = figure_of(empty)
    assert figure["data"] == []
    assert says in figure["layout"]["annotations"][0]["text"]


def test_what_is_highest_now_is_said_in_words() -> None:
    rows = [
        Row(Owner("a", 0), [90.0, 90.0, 50.4]),
        Row(Owner("a", 1), [1.0, 1.0, 81.0]),
        Row(Owner("b", 0), [9, 9, None]),
    ]
    assert highest_now(heat(rows)) == ["a · GPU 1: 81 °C", "a · GPU 0: 50 °C"]
    held = [
        Row(Owner("a", 0), [0.0, 0.0, 0.0], [(), (), ()]),
        Row(Owner("a", 1), [0, 0, 40.0], [(), (), (("sw_power_cap", 40.0),)]),
    ]
    assert highest_now(heat(held, THROTTLED)) == ["a · GPU 1: 40 % (power cap 40 %)"]


@given(st.floats(1, 90 * 86_400))
def test_columns_are_few_however_long_the_time(seconds: float) -> None:
    span = span_of(seconds)
    assert step_of(span) % 30 == 0
    assert span.seconds / step_of(span) <= COLUMNS_MAX


def gpus(node: str, value: float, now_ms: int, **labels: str) -> list[Series]:
    times = range(now_ms - 600_000, now_ms + 1, 5_000)
    return [
        Series(
            {"__name__": "DCGM_FI_DEV_GPU_TEMP", "node": node, "gpu": str(gpu), **labels},
            [(at, value + gpu) for at in times],
        )
        for gpu in range(2)
    ]


def ask(client: Client, search: str, measure: str = "") -> Any:
    inputs = [("address", "search", search), ("again", "data", 0), ("heat-measure", "data", measure)]
    body = {
        "output": "heat-given.data",
        "outputs": {"id": "heat-given", "property": "data"},
        "inputs": [{"id": part, "property": name, "value": value} for part, name, value in inputs],
        "changedPropIds": ["address.search"],
    }
    found = client.post(f"{PAGE}_dash-update-component", body, content_type="application/json")
    assert found.status_code == 200, found.content
    return found.json()["response"]["heat-given"]["data"]


def test_the_card_takes_the_pages_time_and_filters(viewer: Client, fill: Callable[[Iterable[Series]], None]) -> None:
    model = Model.objects.create(name="llama", max_context_tokens=4096)
    pool, node = Pool.objects.create(name="chat", model=model), Node.objects.create(name="rack-2")
    Engine.objects.create(name="e", node=node, pool=pool, url="http://h:1", served_model="llama")
    now_ms = int(time.time() * 1000)
    fill([*gpus("rack-1", 60.0, now_ms), *gpus("rack-2", 70.0, now_ms)])

    def rows(search: str) -> list[str]:
        names: list[str] = [name for trace in ask(viewer, search)["figure"]["data"] for name in trace["y"]]
        return names

    assert rows("?span=15m") == ["rack-1 · GPU 0", "rack-1 · GPU 1", "rack-2 · GPU 0", "rack-2 · GPU 1"]
    assert rows("?span=15m&node=rack-1") == ["rack-1 · GPU 0", "rack-1 · GPU 1"]
    assert rows("?span=15m&pool=chat") == ["rack-2 · GPU 0", "rack-2 · GPU 1"]
    assert rows(f"?from={now_ms // 1000 - 7200}&to={now_ms // 1000 - 3600}") == []
    given_ = ask(viewer, "?span=15m&tenant=acme")
    assert "tenants" in given_["unfiltered"]
    assert given_["highest"][0].startswith("rack-2 · GPU 1: 71 °C")
    assert "DCGM_FI_DEV_GPU_TEMP" in given_["curl"]


def test_the_choice_is_the_buttons_or_else_that_of_the_address(viewer: Client) -> None:
    assert ask(viewer, "?span=15m")["measure"] == "temperature"
    assert ask(viewer, "?span=15m&heat=memory")["measure"] == "memory"
    assert ask(viewer, "?span=15m&heat=memory", "compute")["measure"] == "compute"
    assert ask(viewer, "?span=15m&heat=nonsense")["measure"] == "temperature"


def test_a_store_that_does_not_answer_is_said_on_the_map(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_asked: object) -> list[Answer]:
        raise QueryError("it is away")

    monkeypatch.setattr(heat_reading, "range_", away)
    assert "it is away" in ask(viewer, "?span=1h")["figure"]["layout"]["annotations"][0]["text"]


@pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.name)
def test_over_days_a_row_is_a_node_of_what_is_recorded(measure: Any) -> None:
    promql = promql_of(measure, SPANS["7d"], ())
    assert ("node:" in promql) == bool(promql) == (measure.name != "throttled")


def test_its_words_follow_the_language() -> None:
    with translation.override("tr"):
        figure = figure_of(heat([]))
    assert "ajan" in figure["layout"]["annotations"][0]["text"]


def test_only_the_page_of_engines_has_the_card(viewer: Client) -> None:
    assert "card-heat" in viewer.get(f"{PAGE}_dash-layout").content.decode()
    assert "card-heat" not in viewer.get("/dashboards/_dash-layout").content.decode()
    assert "dashboards/heat.js" in viewer.get(PAGE).content.decode()
