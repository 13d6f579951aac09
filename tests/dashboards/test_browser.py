"""The dashboard in a real browser, against a real web process with samples that came through the receiver."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from playwright.sync_api import Browser, Page, expect

from dashboards.charts import CHARTS, LAYERS
from tests.dashboards.site import Fleet, drawn, newest_ms
from tests.services import service_binary, wait_for
from tests.web.conftest import OpenPage
from tests.web.pictures import log_in
from tests.web.site import Site, running_site

DEADLINE_SECONDS = 30
# Less than the span.
MINUTES_MS = 600_000


@pytest.fixture(autouse=True)
def _patience() -> Iterator[None]:
    """Scripts of a few MB take their time on a machine that does other things too."""
    expect.set_options(timeout=DEADLINE_SECONDS * 1000)
    yield
    expect.set_options()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    service_binary("chromium")
    with running_site(tmp_path_factory.mktemp("site")) as running:
        yield running


@pytest.fixture(scope="module")
def targets(site: Site) -> Fleet:
    return Fleet(site)


@pytest.fixture
def fleet(targets: Fleet) -> Fleet:
    """An hour of samples, the newest of just now."""
    targets.catch_up()
    return targets


def test_every_chart_is_drawn_with_its_newest_values_and_its_line_for_a_shell(
    site: Site, fleet: Fleet, open_page: OpenPage
) -> None:
    page = open_page("vera")
    page.goto(f"{site.url}/dashboards/?span=1h")
    for chart in CHARTS:
        expect(page.locator(f"#{chart.name} .scatterlayer path.js-line").first).to_be_attached()
        expect(page.locator(f"#legend-{chart.name} strong").first).to_have_text(re.compile(r"\d"))
    expect(page.locator("#live")).to_have_text("Live")
    assert [line["name"] for line in drawn(page, "ttft")] == ["chat p95", "chat p50", "summaries p95", "summaries p50"]
    assert [line["name"] for line in drawn(page, "temperature")] == ["rack1-gpu01", "rack1-gpu02", "rack1-gpu03"]
    expect(page.locator("#legend-ttft")).to_contain_text("SLO of chat 800 ms")
    page.locator("#card-kv summary").click()
    expect(page.locator("#curl-kv")).to_contain_text("headworks_engine_kv_cache_usage_ratio")
    expect(page.locator("#curl-kv")).to_contain_text(f"{site.url}/prometheus/api/v1/query_range")


def test_a_week_is_drawn_from_recorded_series_with_its_gap(site: Site, fleet: Fleet, open_page: OpenPage) -> None:
    fleet.record_a_week()
    page = open_page("vera")
    page.goto(f"{site.url}/dashboards/?span=1h")
    expect(page.locator("#note-kv")).to_have_text("Per engine. Near the line an engine preempts requests.")
    page.get_by_text("7 days").click()
    page.wait_for_url("**/dashboards/?pool=&node=&span=7d")
    for chart in CHARTS:
        expect(page.locator(f"#{chart.name} .scatterlayer path.js-line").first).to_be_attached()
    expect(page.locator("#note-kv")).to_contain_text("each point its highest")
    expect(page.locator("#curl-kv")).to_contain_text("engine:headworks_engine_kv_cache_usage_ratio:max")
    for chart in CHARTS:
        for line in drawn(page, chart.name):
            gap = [at for at, value in zip(line["x"], line["y"], strict=True) if value is None]
            assert 9 <= len(gap) <= 12, (chart.name, line["name"])
            assert {later - earlier for earlier, later in pairwise(gap)} == {1_800_000}


def test_the_plots_of_a_row_begin_at_the_same_height_and_as_far_from_their_cards(
    site: Site, fleet: Fleet, open_page: OpenPage
) -> None:
    page = open_page("vera", viewport={"width": 1600, "height": 1000})
    page.goto(f"{site.url}/dashboards/?span=1h")
    for chart in CHARTS:
        expect(page.locator(f"#{chart.name} .scatterlayer path.js-line").first).to_be_attached()
        expect(page.locator(f"#legend-{chart.name} strong").first).to_have_text(re.compile(r"\d"))
    for layer in LAYERS:
        places = page.evaluate(PLOTS, [chart.name for chart in layer.charts])
        # Plotly rounds to whole pixels.
        assert all(max(each) - min(each) <= 1 for each in zip(*places, strict=True)), (layer.title, places)


# Where the plot of each chart begins: below the top of its card, and right of its left edge (px).
PLOTS = """(names) => names.map((name) => {
    const card = document.getElementById(`card-${name}`).getBoundingClientRect();
    const plot = document.querySelector(`#${name} .nsewdrag`).getBoundingClientRect();
    return [plot.top - card.top, plot.left - card.left];
})"""


def test_a_new_sample_appears_without_a_reload_and_leaves_the_time_that_was_chosen(
    site: Site, fleet: Fleet, open_page: OpenPage
) -> None:
    page = open_page("vera")
    page.goto(f"{site.url}/dashboards/")
    expect(page.locator("#live")).to_have_text("Live")
    page.evaluate("() => { window.untouched = true; }")
    expect(page.locator("#ttft .scatterlayer path.js-line").first).to_be_attached()
    drag_over(page, "ttft")
    chosen = time_axis(page, "ttft")
    assert chosen[1] - chosen[0] < MINUTES_MS
    pushed_ms = fleet.catch_up()
    wait_for(lambda: newest_ms(page, "temperature") > pushed_ms, DEADLINE_SECONDS, "a point after the push")
    [first, *_others] = drawn(page, "temperature")
    assert first["y"][-1] is not None
    assert page.evaluate("() => window.untouched") is True
    wait_for(lambda: newest_ms(page, "ttft") > pushed_ms, DEADLINE_SECONDS, "a point in the chart looked closer at")
    assert time_axis(page, "ttft") == chosen
    page.locator("#ttft .nsewdrag").dblclick()
    wait_for(lambda: time_axis(page, "ttft")[1] > pushed_ms, DEADLINE_SECONDS, "the whole time again")


def drag_over(page: Page, chart: str) -> None:
    """Choose a part of the time of a chart, as a person does who looks closer."""
    ground = page.locator(f"#{chart} .nsewdrag").bounding_box()
    assert ground
    page.mouse.move(ground["x"] + ground["width"] * 0.3, ground["y"] + 20)
    page.mouse.down()
    page.mouse.move(ground["x"] + ground["width"] * 0.5, ground["y"] + 22, steps=5)
    page.mouse.up()
    wait_for(lambda: time_axis(page, chart)[1] < newest_ms(page, chart), DEADLINE_SECONDS, "the part that was chosen")


def time_axis(page: Page, chart: str) -> list[float]:
    """From when to when the axis of a chart goes (Unix ms)."""
    ends: list[float] = page.evaluate(
        """(chart) => document.querySelector(`#${chart} .js-plotly-plot`)._fullLayout.xaxis.range
            .map((end) => Date.parse(`${end.replace(" ", "T")}Z`))""",
        chart,
    )
    return ends


def test_a_pool_and_a_node_can_be_chosen(site: Site, fleet: Fleet, open_page: OpenPage) -> None:
    page = open_page("vera")
    page.goto(f"{site.url}/dashboards/?span=1h&node=rack1-gpu02")
    page.get_by_label("Pool").select_option("summaries")
    page.wait_for_url("**/dashboards/?pool=summaries&node=rack1-gpu02&span=1h")
    for chart, lines in {"ttft": ["summaries p95", "summaries p50"], "power": ["rack1-gpu02"]}.items():
        wait_for(lambda: drawn(page, chart), DEADLINE_SECONDS, "a drawn chart")  # noqa: B023 - called at once
        assert [line["name"] for line in drawn(page, chart)] == lines


def test_the_page_is_turkish_for_who_reads_turkish(site: Site, fleet: Fleet, open_page: OpenPage) -> None:
    page = open_page("vera", locale="tr-TR")
    page.goto(f"{site.url}/dashboards/?span=1h")
    expect(page.locator("#live")).to_have_text("Canlı")
    expect(page.get_by_role("heading", name="Kuyrukta bekleme")).to_be_visible()
    expect(page.locator("#legend-queue")).to_contain_text("motor ort.")


def test_a_session_that_ends_leads_an_open_page_to_the_log_in(site: Site, fleet: Fleet, browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    log_in(page, site, "vera")
    page.goto(f"{site.url}/dashboards/")
    expect(page.locator("#live")).to_have_text("Live")
    other = context.new_page()
    other.goto(f"{site.url}/tenants/")
    other.get_by_role("button", name="Log out").click()
    page.bring_to_front()
    page.wait_for_url("**/log-in/**", timeout=DEADLINE_SECONDS * 1000)


def test_after_a_restart_the_stream_goes_on_without_a_gap_or_a_doubled_point(
    site: Site, fleet: Fleet, browser: Browser
) -> None:
    # Not by `open_page`: the browser reports the lost stream in its console.
    page = browser.new_context().new_page()
    log_in(page, site, "vera")
    page.goto(f"{site.url}/dashboards/")
    expect(page.locator("#live")).to_have_text("Live")
    page.evaluate("() => { window.untouched = true; }")
    before_ms = newest_ms(page, "temperature")
    site.process.kill()
    site.start()
    fleet.catch_up()
    wait_for(lambda: newest_ms(page, "temperature") > before_ms + 5_000, DEADLINE_SECONDS, "points after the restart")
    assert page.evaluate("() => window.untouched") is True
    for line in drawn(page, "temperature"):
        assert {later - earlier for earlier, later in pairwise(line["x"])} == {5_000}
        assert len(line["x"]) == len(line["y"]) == 181
