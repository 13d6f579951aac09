from __future__ import annotations

from dataclasses import replace

from django.utils import translation
from django.utils.translation import gettext_lazy as _
from hypothesis import given
from hypothesis import strategies as st

from dashboards import units
from dashboards.charts import CHARTS, Chart, Query
from dashboards.figures import COLOURS, SHOWN_SERIES, THRESHOLD_COLOUR, Threshold, figure_of, highest, newer_points
from dashboards.lines import Line
from dashboards.readings import Reading
from dashboards.spans import SPANS

TIMES_MS = [0, 5_000, 10_000]
P95, P50 = Query("p95", "", "p95"), Query("p50", "", "p50", look="dotted")
TTFT = Chart(
    "ttft",
    _("TTFT"),
    _("TTFT."),
    units.SECONDS,
    ("pool",),
    (P95, P50),
    ("pool",),
    _("Is anyone there, and does anyone ask?"),
)
GROUNDS = ("#ffffff", "#181d25")  # Of a card, in site.css.


def line(name: str, *values: float | None, query: Query = P95) -> Line:
    return Line(name, query, {"pool": name}, values)


def reading(lines: list[Line], refused: str = "") -> Reading:
    return Reading(SPANS["15m"], TIMES_MS, {"ttft": lines}, {"ttft": refused} if refused else {})


def joined(annotation: dict[str, str]) -> str:
    return annotation["text"].replace("<br>", " ")


def test_a_pool_has_one_colour_and_its_p50_is_dotted() -> None:
    lines = [line("chat", 1, 2, 3), line("code", 1, 1, 1), line("chat", 0, 1, 2, query=P50)]
    figure = figure_of(TTFT, lines, reading(lines), [])
    drawn = [(each["name"], each["line"]["color"], each["line"]["dash"]) for each in figure["data"]]
    assert drawn == [
        ("chat p95", COLOURS[0], "solid"),
        ("chat p50", COLOURS[0], "dot"),
        ("code p95", COLOURS[1], "solid"),
    ]


def test_a_gap_stays_a_gap() -> None:
    lines = [line("chat", 1, None, 3)]
    [trace] = figure_of(TTFT, lines, reading(lines), [])["data"]
    assert trace["y"] == [1, None, 3]
    assert trace["connectgaps"] is False


def test_the_axis_is_the_whole_span_in_its_unit() -> None:
    lines = [line("chat", None, 1, None)]
    layout = figure_of(TTFT, lines, reading(lines), [])["layout"]
    assert layout["xaxis"]["range"] == [0, 10_000]
    assert layout["yaxis"]["ticksuffix"] == " s"
    assert layout["yaxis"]["rangemode"] == "tozero"


def test_a_unit_on_an_axis_stands_after_a_space_and_never_after_a_prefix() -> None:
    for unit in {chart.unit for chart in CHARTS if chart.unit.ticks}:
        assert unit.tick == unit.after == f" {unit.text}"
        for number in (unit.axis, unit.hover):
            assert not number.endswith("s"), "d3's s writes 500m, right at the number"


def test_a_threshold_is_a_line_and_stands_in_the_legend() -> None:
    lines = [line("chat", 1, 1, 1)]
    layout = figure_of(TTFT, lines, reading(lines), [Threshold(0.8, "SLO of chat")])["layout"]
    assert [(shape["y0"], shape["y1"]) for shape in layout["shapes"]] == [(0.8, 0.8)]
    assert layout["meta"]["thresholds"] == [{"text": "SLO of chat", "value": 0.8}]


def test_an_empty_chart_says_that_nothing_was_measured() -> None:
    layout = figure_of(TTFT, [], reading([]), [Threshold(0.8, "SLO of chat")])["layout"]
    [said] = layout["annotations"]
    assert said["text"] == "Nothing was measured in this time.<br>Is anyone there, and does anyone<br>ask?"
    assert layout["shapes"] == [], "a line through the text"
    assert layout["meta"]["thresholds"] == [], "the legend takes the colour of each from its line"
    assert layout["yaxis"]["visible"] is False


def test_an_empty_chart_of_days_says_that_nothing_was_recorded() -> None:
    recorded = replace(TTFT, queries=(Query("p95", "recorded_p95"),))
    [said] = figure_of(recorded, [], Reading(SPANS["7d"], TIMES_MS, {}, {}), [])["layout"]["annotations"]
    assert joined(said) == "Nothing was recorded in this time. There is a point every 30 minutes."


def test_a_chart_whose_days_nothing_records_says_so() -> None:
    [said] = figure_of(TTFT, [], Reading(SPANS["7d"], TIMES_MS, {}, {}), [])["layout"]["annotations"]
    assert joined(said) == "Days of this are not recorded. Choose 6 h or less."


def test_the_legend_knows_how_often_there_is_a_value() -> None:
    layout = figure_of(TTFT, [], reading([]), [])["layout"]
    assert layout["meta"]["interval_ms"] == SPANS["15m"].step_ms


def test_a_point_that_is_alone_is_drawn_as_one() -> None:
    for values, mode in (((None, 1, None), "lines+markers"), ((None, 1, 2), "lines")):
        lines = [line("chat", *values)]
        assert figure_of(TTFT, lines, reading(lines), [])["data"][0]["mode"] == mode


def test_over_days_hovering_says_the_date() -> None:
    formats = {
        span.name: figure_of(TTFT, [], Reading(span, TIMES_MS, {}, {}), [])["layout"]["xaxis"]["hoverformat"]
        for span in SPANS.values()
    }
    assert {name for name, text in formats.items() if "%d" in text} == {"24h", "7d"}


def test_a_chart_that_the_store_refused_says_why() -> None:
    layout = figure_of(TTFT, [], reading([], "too many queries at once"), [])["layout"]
    [said] = layout["annotations"]
    assert joined(said).endswith("too many queries at once")
    # The page offers to try again.
    assert layout["meta"]["refused"] is True


def test_what_a_store_says_is_text_and_no_markup() -> None:
    [said] = figure_of(TTFT, [], reading([], '<a href="http://else">x</a>'), [])["layout"]["annotations"]
    assert joined(said).endswith("&lt;a href=&quot;http://else&quot;&gt;x&lt;/a&gt;")


def test_numbers_read_in_the_viewers_language() -> None:
    with translation.override("tr"):
        layout = figure_of(TTFT, [], reading([]), [])["layout"]
    assert layout["separators"] == ",."
    assert (layout["yaxis"]["ticksuffix"], layout["meta"]["unit"]) == (" sn", "sn")


@given(st.dictionaries(st.text(min_size=1), st.lists(st.floats(0, 100) | st.none(), min_size=1), max_size=30))
def test_of_many_series_those_with_the_highest_peaks_are_drawn(values: dict[str, list[float | None]]) -> None:
    lines = [line(name, *each) for name, each in values.items()]
    shown, hidden = highest(lines)
    assert len(shown) == min(len(lines), SHOWN_SERIES)
    assert len(shown) + hidden == len(lines)
    assert [each.name for each in shown] == sorted(each.name for each in shown)
    left_out = [each.peak for each in lines if each not in shown]
    assert all(each.peak >= peak for each in shown for peak in left_out)


def test_both_lines_of_a_series_are_drawn_or_neither() -> None:
    lines = [line(f"pool-{number}", 100 - number) for number in range(20)]
    lines += [line(f"pool-{number}", 0, query=P50) for number in range(20)]
    shown, hidden = highest(lines)
    assert len(shown) == 2 * SHOWN_SERIES
    assert {each.name for each in shown} == {f"pool-{number}" for number in range(SHOWN_SERIES)}
    assert hidden == 20 - SHOWN_SERIES


def test_points_are_told_by_line_in_no_language() -> None:
    with translation.override("tr"):
        points = newer_points({"ttft": [line("chat", 1, None, 3)]}, TIMES_MS)
    assert points == {"times": TIMES_MS, "lines": {"ttft": {"chat|drawn": {"y": [1, None, 3], "notes": []}}}}


def luminance(colour: str) -> float:
    """WCAG 2's relative luminance."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_every_colour_stands_out_on_the_light_and_the_dark_ground() -> None:
    for colour in (*COLOURS, THRESHOLD_COLOUR):
        for ground in GROUNDS:
            darker, lighter = sorted((luminance(colour), luminance(ground)))
            assert (lighter + 0.05) / (darker + 0.05) >= 3, (colour, ground)
