"""The dashboards in a real browser, against a real web process with samples that came through the receiver."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, TimeoutError, expect

from dashboards.charts import LAYERS
from tests.dashboards.site import Fleet, drawn, newest_ms
from tests.services import service_binary, wait_for
from tests.web.conftest import OpenPage
from tests.web.pictures import log_in
from tests.web.site import Site, running_site

DEADLINE_SECONDS = 30
# Less than the span.
MINUTES_MS = 600_000
# What the small fleet measures, by layer; a chart without values is told of in test_figures.
MEASURED = {
    "experience": ("ttft", "requests"),
    "queue": ("queue", "engine_time", "tokens"),
    "engines": ("kv", "compute", "temperature", "power"),
}
RECORDED = MEASURED["engines"]
PNG = b"\x89PNG\r\n\x1a\n"


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
    for layer in LAYERS:
        page.goto(f"{site.url}/dashboards/{layer.path}?span=1h")
        expect(page.locator("#live")).to_have_text("Live")
        for chart in MEASURED[layer.name]:
            expect(page.locator(f"#{chart} .scatterlayer path.js-line").first).to_be_attached()
            expect(page.locator(f"#legend-{chart} strong").first).to_have_text(re.compile(r"\d"))
        if layer is LAYERS[0]:
            expect(page.locator("#legend-ttft")).to_contain_text("SLO of chat 800 ms")
            lines = [f"{pool} {stat}" for pool in ("chat", "summaries") for stat in ("p95", "p50", "p99")]
            assert [line["name"] for line in drawn(page, "ttft")] == lines
    assert [line["name"] for line in drawn(page, "temperature")] == ["rack1-gpu01", "rack1-gpu02", "rack1-gpu03"]
    page.locator("#card-kv .curl summary").click()
    expect(page.locator("#curl-kv")).to_contain_text("headworks_engine_kv_cache_usage_ratio")
    expect(page.locator("#curl-kv")).to_contain_text(f"{site.url}/prometheus/api/v1/query_range")


def test_a_week_is_drawn_from_recorded_series_with_its_gap(site: Site, fleet: Fleet, open_page: OpenPage) -> None:
    fleet.record_a_week()
    page = open_page("vera")
    page.goto(f"{site.url}/dashboards/engines/?span=1h")
    expect(page.locator("#note-kv")).to_have_text("Per engine. Near the line an engine preempts requests.")
    page.get_by_text("7 days").click()
    page.wait_for_url("**/dashboards/engines/?span=7d")
    expect(page.locator("#note-kv")).to_contain_text("each point its highest")
    expect(page.locator("#curl-kv")).to_contain_text("engine:headworks_engine_kv_cache_usage_ratio:max")
    for chart in RECORDED:
        expect(page.locator(f"#{chart} .scatterlayer path.js-line").first).to_be_attached()
        for line in drawn(page, chart):
            gap = [at for at, value in zip(line["x"], line["y"], strict=True) if value is None]
            assert 9 <= len(gap) <= 12, (chart, line["name"])
            assert {later - earlier for earlier, later in pairwise(gap)} == {1_800_000}


def test_the_plots_of_a_row_begin_at_the_same_height_and_as_far_from_their_cards(
    site: Site, fleet: Fleet, open_page: OpenPage
) -> None:
    page = open_page("vera", viewport={"width": 1600, "height": 1000})
    page.goto(f"{site.url}/dashboards/?span=1h")
    first, *_others = LAYERS[0].sections
    for chart in first.charts:
        expect(page.locator(f"#{chart.name} .nsewdrag")).to_be_attached()
    places = page.evaluate(PLOTS, [chart.name for chart in first.charts])
    # Plotly rounds to whole pixels.
    assert all(max(each) - min(each) <= 1 for each in zip(*places, strict=True)), places


# Where the plot of each chart begins: below the top of its card, and right of its left edge (px).
PLOTS = """(names) => names.map((name) => {
    const card = document.getElementById(`card-${name}`).getBoundingClientRect();
    const plot = document.querySelector(`#${name} .nsewdrag`).getBoundingClientRect();
    return [plot.top - card.top, plot.left - card.left];
})"""


def test_a_new_sample_appears_without_a_reload(site: Site, fleet: Fleet, open_page: OpenPage) -> None:
    page = open_page("vera")
    page.goto(f"{site.url}/dashboards/engines/")
    expect(page.locator("#live")).to_have_text("Live")
    page.evaluate("() => { window.untouched = true; }")
    expect(page.locator("#temperature .scatterlayer path.js-line").first).to_be_attached()
    # What nobody sees is drawn once it is seen.
    page.locator("#temperature").scroll_into_view_if_needed()
    pushed_ms = fleet.catch_up()
    wait_for(lambda: newest_ms(page, "temperature") > pushed_ms, DEADLINE_SECONDS, "a point after the push")
    [first, *_others] = drawn(page, "temperature")
    assert first["y"][-1] is not None
    assert page.evaluate("() => window.untouched") is True
    # One that ended is grey, and says how old its newest value is.
    said = page.evaluate(LEGEND_OF_ONE_THAT_ENDED)
    assert said.count('"className":"stale"') == 1
    assert re.search(r'"\d+ min ago"', said)


LEGEND_OF_ONE_THAT_ENDED = """() => {
    const figure = structuredClone(window.headworks.charts.whole().figures.temperature);
    const [line] = figure.data;
    line.y = line.y.map((value, at) => (at > line.y.length - 30 ? null : value));
    return JSON.stringify(window.headworks.legend(figure, true));
}"""


def test_a_drag_sets_the_time_of_all_charts_and_the_address_leads_others_there(
    site: Site, fleet: Fleet, open_page: OpenPage
) -> None:
    page = open_page("vera")
    page.goto(f"{site.url}/dashboards/?pool=chat")
    expect(page.locator("#live")).to_have_text("Live")
    expect(page.locator("#ttft .scatterlayer path.js-line").first).to_be_attached()
    drag_over(page, "ttft")
    page.wait_for_url(re.compile(r"[?]pool=chat&from=\d+&to=\d+$"))
    expect(page.locator("#live")).to_have_text("A time that has ended")
    chosen = time_axis(page, "ttft")
    assert chosen[1] - chosen[0] < MINUTES_MS
    wait_for(lambda: time_axis(page, "requests") == chosen, DEADLINE_SECONDS, "the same time in another chart")
    # Nothing moves meanwhile, and the other layers show the same time.
    before_ms = newest_ms(page, "ttft")
    pushed_ms = fleet.catch_up()
    other = open_page("vera")
    other.goto(page.url)
    expect(other.locator("#live")).to_have_text("A time that has ended")
    wait_for(lambda: time_axis(other, "ttft") == chosen, DEADLINE_SECONDS, "the same time elsewhere")
    assert (newest_ms(page, "ttft"), time_axis(page, "ttft")) == (before_ms, chosen)
    assert page.url.partition("?")[2] in str(page.locator(".tabs a").last.get_attribute("href"))
    # Back, as everywhere; forward; and by the button.
    page.go_back()
    wait_for(lambda: time_axis(page, "ttft")[1] > pushed_ms - MINUTES_MS, DEADLINE_SECONDS, "the whole time again")
    expect(page.locator("#live")).to_have_text("Live")
    page.go_forward()
    wait_for(lambda: time_axis(page, "requests") == chosen, DEADLINE_SECONDS, "the time that was chosen")
    page.get_by_role("button", name="Back to live").click()
    expect(page.locator("#live")).to_have_text("Live")
    wait_for(lambda: newest_ms(page, "ttft") > pushed_ms - 15_000, DEADLINE_SECONDS, "points again")
    # Or by a double click on any chart.
    drag_over(page, "tpot")
    page.locator("#ttft .nsewdrag").dblclick()
    expect(page.locator("#live")).to_have_text("Live")
    page.wait_for_url("**/dashboards/?pool=chat")


def drag_over(page: Page, chart: str) -> None:
    """Choose a part of the time of a chart, as a person does who looks closer."""
    whole = time_axis(page, chart)
    drag(page, chart)
    wait_for(lambda: time_axis(page, chart) != whole, DEADLINE_SECONDS, "the part that was chosen")
    # The server answers it with points from its begin to its end.
    wait_for(lambda: time_axis(page, chart) == ends(page, chart), DEADLINE_SECONDS, "its points")
    expect(page.locator("#live")).to_have_text("A time that has ended")


def drag(page: Page, chart: str) -> None:
    """Over a fifth of its time."""
    ground = page.locator(f"#{chart} .nsewdrag").bounding_box()
    assert ground
    page.mouse.move(ground["x"] + ground["width"] * 0.3, ground["y"] + 20)
    page.mouse.down()
    page.mouse.move(ground["x"] + ground["width"] * 0.5, ground["y"] + 22, steps=5)
    page.mouse.up()


def ends(page: Page, chart: str) -> list[float]:
    """The first and the last moment of a chart's points (Unix ms)."""
    times = drawn(page, chart)[0]["x"]
    return [times[0], times[-1]]


def time_axis(page: Page, chart: str) -> list[float]:
    """From when to when the axis of a chart goes (Unix ms)."""
    ends: list[float] = page.evaluate(
        """(chart) => document.querySelector(`#${chart} .js-plotly-plot`)?._fullLayout?.xaxis.range
            .map((end) => Date.parse(`${end.replace(" ", "T")}Z`)) ?? [0, 0]""",
        chart,
    )
    return ends


def test_what_happens_is_marked_on_every_chart_and_leads_to_its_page(
    site: Site, fleet: Fleet, open_page: OpenPage
) -> None:
    page = open_page("vera")
    page.goto(f"{site.url}/dashboards/")
    expect(page.locator("#live")).to_have_text("Live")
    site.rest.post("/nodes/rack1-gpu01/cordon", {})
    cordon = page.locator("#marks li", has_text="rack1-gpu01 cordoned")
    expect(cordon).to_have_count(1)
    for chart in ("ttft", "goodput", "streams_cut"):
        page.locator(f"#{chart}").scroll_into_view_if_needed()
        expect(page.locator(f"#{chart} .infolayer .annotation-text", has_text="■").first).to_be_visible()
        assert page.evaluate(MARK_LINES, chart) > 0
    # Without the kinds that are not to be seen, also for who opens the link.
    for kind in ("Revisions", "Incidents"):
        page.get_by_label(kind).uncheck()
    assert page.url.endswith("/dashboards/?hide=revision%2Cincident")
    page.reload()
    expect(page.locator("#live")).to_have_text("Live")
    expect(page.get_by_label("Revisions")).not_to_be_checked()
    expect(page.locator("#marks li")).to_have_count(1)
    word = page.locator("#ttft .infolayer .annotation-text", has_text="■ cordon")
    word.hover()
    expect(page.get_by_role("tooltip")).to_contain_text("rack1-gpu01 cordoned · ada/set-up")
    word.click()
    page.wait_for_url("**/fleet/rack1-gpu01/")
    site.rest.post("/nodes/rack1-gpu01/uncordon", {})


MARK_LINES = """(chart) => document.querySelector(`#${chart} .js-plotly-plot`).layout.shapes
    .filter(({xref, x0, x1}) => xref === "x" && x0 === x1).length"""


def test_a_chart_is_taken_away_as_values_and_as_a_picture(
    site: Site, fleet: Fleet, open_page: OpenPage, tmp_path: Path
) -> None:
    page = open_page("vera", accept_downloads=True)
    page.goto(f"{site.url}/dashboards/?span=1h")
    expect(page.locator("#ttft .scatterlayer path.js-line").first).to_be_attached()
    drag_over(page, "ttft")
    values, picture = (download_of(page, "ttft", name, tmp_path) for name in ("Values (CSV)", "Picture (PNG)"))
    head, *rows = csv.reader(values.decode().splitlines())
    lines = drawn(page, "ttft")
    assert head[2:] == [f"{line['name']} (s)" for line in lines]
    for column, line in enumerate(lines, start=2):
        assert [int(row[1]) * 1000 for row in rows] == line["x"]
        assert [float(row[column]) for row in rows] == line["y"]
    assert picture.startswith(PNG)
    assert len(picture) > 10_000


def download_of(page: Page, chart: str, name: str, folder: Path) -> bytes:
    """By keyboard alone."""
    page.locator(f"#card-{chart} .chart-menu summary").focus()
    page.keyboard.press("Enter")
    page.locator(f"#card-{chart}").get_by_role("button", name=name).focus()
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path.read_bytes()


def test_a_page_has_one_stream_and_none_while_it_is_not_seen(site: Site, fleet: Fleet, open_page: OpenPage) -> None:
    page = open_page("vera")
    page.add_init_script(COUNT_STREAMS)
    page.goto(f"{site.url}/dashboards/")
    expect(page.locator("#live")).to_have_text("Live")
    [only] = page.evaluate("window.openStreams()")
    assert "/dashboards/live?" in only
    # It tells the frame too: a new revision moves the header's count.
    before = page.evaluate("window.published")
    site.rest.post("/tenants", {"name": "newcomer"})
    wait_for(lambda: page.evaluate("window.published") > before, DEADLINE_SECONDS, "the revision that was published")
    page.evaluate("window.see(false)")
    assert page.evaluate("window.openStreams()") == []
    page.evaluate("window.see(true)")
    assert len(page.evaluate("window.openStreams()")) == 1
    # What has ended needs no points: the stream of all pages is enough.
    drag_over(page, "ttft")
    wait_for(lambda: page.evaluate("window.openStreams()") == [f"{site.url}/live"], DEADLINE_SECONDS, "another stream")


COUNT_STREAMS = """
window.published = 0;
document.addEventListener("published", () => { window.published += 1; }, true);
const streams = [];
const Plain = window.EventSource;
window.EventSource = class extends Plain { constructor(...given) { super(...given); streams.push(this); } };
window.openStreams = () => streams.filter(({readyState}) => readyState !== Plain.CLOSED).map(({url}) => url);
window.see = (seen) => {
    Object.defineProperty(document, "hidden", {value: !seen, configurable: true});
    document.dispatchEvent(new Event("visibilitychange"));
};
"""


FIGURES = re.compile("/_dash-update-component")


def test_charts_that_did_not_come_say_so_and_come_when_asked_again(site: Site, fleet: Fleet, browser: Browser) -> None:
    # Not by `open_page`: the browser reports the lost answer in its console.
    page = browser.new_context().new_page()
    log_in(page, site, "vera")
    page.route(FIGURES, lambda route: route.fulfill(status=500))
    page.goto(f"{site.url}/dashboards/")
    expect(page.locator("#live")).to_have_text("The control plane did not answer")
    expect(page.locator("#card-ttft .failed")).to_be_visible()
    page.unroute(FIGURES)
    page.locator("#retry").click()
    expect(page.locator("#live")).to_have_text("Live")
    expect(page.locator("#ttft .scatterlayer path.js-line").first).to_be_attached()
    expect(page.locator("#retry")).to_be_hidden()


def test_the_open_layer_is_seen_among_the_tabs_of_a_phone(site: Site, fleet: Fleet, open_page: OpenPage) -> None:
    page = open_page("vera", viewport={"width": 240, "height": 844})
    page.goto(f"{site.url}/dashboards/{LAYERS[-1].path}")
    assert page.evaluate("""() => {
        const [strip, here] = [".tabs", ".tabs [aria-current]"].map((part) => document.querySelector(part));
        const [around, open] = [strip, here].map((part) => part.getBoundingClientRect());
        const isCut = strip.scrollWidth > strip.clientWidth;
        return isCut && open.left >= around.left - 1 && open.right <= around.right + 1;
    }""")


def test_a_pool_and_a_node_can_be_chosen(site: Site, fleet: Fleet, open_page: OpenPage) -> None:
    """Charts of GPUs follow a pool by the nodes of its engines."""
    page = open_page("vera")
    for node, pool, address, names in (
        ("", "chat", "pool=chat&span=1h", ["rack1-gpu01", "rack1-gpu03"]),
        ("rack1-gpu02", "summaries", "pool=summaries&node=rack1-gpu02&span=1h", ["rack1-gpu02"]),
    ):
        page.goto(f"{site.url}/dashboards/engines/?span=1h&node={node}")
        page.get_by_label("Pool").select_option(pool)
        page.wait_for_url(f"**/dashboards/engines/?{address}")
        wait_for(lambda: drawn(page, "power"), DEADLINE_SECONDS, "a drawn chart")
        assert [line["name"] for line in drawn(page, "power")] == names


def test_a_phone_has_what_is_seldom_chosen_folded_unless_it_was(site: Site, fleet: Fleet, open_page: OpenPage) -> None:
    page = open_page("vera", viewport={"width": 390, "height": 844})
    page.goto(f"{site.url}/dashboards/?span=1h")
    cordons, fold = page.get_by_label("Cordons"), page.locator(".more-choices summary")
    expect(cordons).to_be_hidden()
    fold.click()
    expect(cordons).to_be_checked()
    page.goto(f"{site.url}/dashboards/?span=1h&hide=cordon")
    expect(cordons).to_be_visible()
    expect(cordons).not_to_be_checked()
    page.set_viewport_size({"width": 1280, "height": 800})
    expect(fold).to_be_hidden()


def test_the_page_is_turkish_for_who_reads_turkish(site: Site, fleet: Fleet, open_page: OpenPage) -> None:
    page = open_page("vera", locale="tr-TR")
    page.goto(f"{site.url}/dashboards/queue/?span=1h")
    expect(page.locator("#live")).to_have_text("Canlı")
    expect(page.get_by_role("heading", name="Kuyrukta bekleme")).to_be_visible()
    expect(page.get_by_label("Devre dışı bırakmalar")).to_be_checked()
    page.goto(f"{site.url}/dashboards/engines/?span=1h")
    expect(page.locator("#temperature .scatterlayer path.js-line").first).to_be_attached()
    assert re.search(r'"\d+ dk önce"', page.evaluate(LEGEND_OF_ONE_THAT_ENDED))


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
    page.goto(f"{site.url}/dashboards/engines/")
    expect(page.locator("#live")).to_have_text("Live")
    page.evaluate("() => { window.untouched = true; }")
    page.locator("#temperature").scroll_into_view_if_needed()
    before_ms = newest_ms(page, "temperature")
    site.process.kill()
    site.start()
    fleet.catch_up()
    wait_for(lambda: newest_ms(page, "temperature") > before_ms + 5_000, DEADLINE_SECONDS, "points after the restart")
    assert page.evaluate("() => window.untouched") is True
    for line in drawn(page, "temperature"):
        assert {later - earlier for earlier, later in pairwise(line["x"])} == {5_000}
        assert len(line["x"]) == len(line["y"]) == 181


def test_the_heat_map_shows_each_gpu_and_what_is_chosen_stands_in_the_address(
    site: Site, fleet: Fleet, open_page: OpenPage
) -> None:
    page = open_page("vera")
    page.goto(f"{site.url}/dashboards/engines/?span=1h")
    expect(page.locator("#heat .heatmaplayer image")).to_be_attached()
    expect(page.locator("#heat-temperature")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#heat-legend li").last).to_have_text("90 °C")
    expect(page.locator("#heat-highest")).to_contain_text("GPU")
    rows = page.evaluate("() => document.querySelector('#heat .js-plotly-plot').data[0].y.length")
    assert rows == 24
    page.locator("#heat-compute").click()
    expect(page.locator("#heat-compute")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#heat-legend li").last).to_have_text("100 %")
    assert "heat=compute" in page.url
    page.reload()
    expect(page.locator("#heat-compute")).to_have_attribute("aria-pressed", "true")


def test_a_drag_over_the_heat_map_sets_the_time_of_all_and_it_is_taken_away_as_a_picture(
    site: Site, fleet: Fleet, open_page: OpenPage, tmp_path: Path
) -> None:
    page = open_page("vera", accept_downloads=True)
    page.goto(f"{site.url}/dashboards/engines/?span=1h")
    expect(page.locator("#heat .heatmaplayer image")).to_be_attached()
    page.locator("#heat").scroll_into_view_if_needed()
    whole = time_axis(page, "heat")
    drag(page, "heat")
    page.wait_for_url(re.compile(r"from=\d+&to=\d+$"))
    expect(page.locator("#live")).to_have_text("A time that has ended")
    # A chart and the map itself, in cells of less time.
    for chart in ("kv", "heat"):
        wait_for(partial(_goes_over_what_is_asked, page, chart), DEADLINE_SECONDS, chart)
    assert whole[0] < asked_of(page)[0] < asked_of(page)[1] < whole[1]
    page.locator("#card-heat").get_by_role("button", name="Picture (PNG)").focus()
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    assert download.value.suggested_filename.startswith("heat-")
    path = tmp_path / "heat.png"
    download.value.save_as(path)
    picture = path.read_bytes()
    assert picture.startswith(PNG)
    assert len(picture) > 10_000
    # A double click shows all again.
    page.locator("#heat .nsewdrag").dblclick()
    expect(page.locator("#live")).to_have_text("Live")


def _goes_over_what_is_asked(page: Page, chart: str) -> bool:
    """Whether a chart's axis goes over the time of the address, but for the steps that it is shown in."""
    return all(abs(at - end) <= 60_000 for at, end in zip(asked_of(page), time_axis(page, chart), strict=True))


def asked_of(page: Page) -> list[float]:
    """From when to when the address asks (Unix ms)."""
    return [int(second) * 1000 for second in re.findall(r"(?:from|to)=(\d+)", page.url)]


@pytest.mark.timeout(300)
def test_what_happens_is_marked_on_the_heat_map_until_nothing_is_to_be_seen(
    site: Site, fleet: Fleet, open_page: OpenPage
) -> None:
    page = open_page("vera")
    page.goto(f"{site.url}/dashboards/engines/?span=1h")
    expect(page.locator("#marks li[data-mark]").first).to_be_attached()

    def is_marked() -> bool:
        page.reload()
        expect(page.locator("#heat .heatmaplayer image")).to_be_attached()
        try:
            page.wait_for_function(f"() => ({MARK_LINES})('heat') > 0", timeout=5_000)
        except TimeoutError:
            return False
        return True

    # What happened since the newest cell stands on none yet.
    wait_for(is_marked, 4 * DEADLINE_SECONDS, "a mark on a cell")
    for box in page.locator("#mark-kinds input").all():
        box.uncheck()
    page.wait_for_function(f"() => ({MARK_LINES})('heat') === 0")
