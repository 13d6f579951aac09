"""The dashboard in a real browser, against a real web process with samples that came through the receiver."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from dashboards.charts import CHARTS
from tests.dashboards.site import Fleet, drawn, newest_ms
from tests.services import service_binary, wait_for
from tests.web.pictures import log_in
from tests.web.site import Site, running_site

OpenPage = Callable[..., Page]
DEADLINE_SECONDS = 30


@pytest.fixture(autouse=True)
def _patience() -> None:
    """Scripts of a few MB take their time on a machine that does other things too."""
    expect.set_options(timeout=DEADLINE_SECONDS * 1000)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    service_binary("chromium")
    with running_site(tmp_path_factory.mktemp("site")) as running:
        yield running
        # Another one than was started first, after the test that kills it.
        running.process.stop()


@pytest.fixture(scope="module")
def targets(site: Site) -> Fleet:
    return Fleet(site)


@pytest.fixture
def fleet(targets: Fleet) -> Fleet:
    """An hour of samples, the newest of just now."""
    targets.catch_up()
    return targets


@pytest.fixture
def open_page(site: Site, browser: Browser) -> Iterator[OpenPage]:
    """A page logged in as vera. At the end: nothing in its console, and no request left this host."""
    complaints: list[str] = []

    def open_as(**options: Any) -> Page:
        page = browser.new_context(**options).new_page()
        page.on(
            "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: None if request.url.startswith(site.url) else complaints.append(request.url))
        log_in(page, site, "vera")
        return page

    yield open_as
    assert complaints == []


def test_every_chart_is_drawn_and_says_its_newest_values(site: Site, fleet: Fleet, open_page: OpenPage) -> None:
    page = open_page()
    page.goto(f"{site.url}/dashboards/?span=1h")
    for chart in CHARTS:
        expect(page.locator(f"#{chart.name} .scatterlayer path.js-line").first).to_be_attached()
        expect(page.locator(f"#legend-{chart.name} strong").first).to_have_text(re.compile(r"\d"))
    expect(page.locator("#live")).to_have_text("Live")
    assert [line["name"] for line in drawn(page, "ttft")] == ["chat p95", "chat p50", "summaries p95", "summaries p50"]
    assert [line["name"] for line in drawn(page, "temperature")] == ["rack1-gpu01", "rack1-gpu02", "rack1-gpu03"]
    expect(page.locator("#legend-ttft")).to_contain_text("SLO of chat 800 ms")


def test_a_new_sample_appears_without_a_reload(site: Site, fleet: Fleet, open_page: OpenPage) -> None:
    page = open_page()
    page.goto(f"{site.url}/dashboards/")
    expect(page.locator("#live")).to_have_text("Live")
    page.evaluate("() => { window.untouched = true; }")
    pushed_ms = fleet.catch_up()
    wait_for(lambda: newest_ms(page, "temperature") > pushed_ms, DEADLINE_SECONDS, "a point after the push")
    [first, *_others] = drawn(page, "temperature")
    assert first["y"][-1] is not None
    assert page.evaluate("() => window.untouched") is True


def test_a_pool_and_a_node_can_be_chosen(site: Site, fleet: Fleet, open_page: OpenPage) -> None:
    page = open_page()
    page.goto(f"{site.url}/dashboards/?span=1h&node=rack1-gpu02")
    page.get_by_label("Pool").select_option("summaries")
    page.wait_for_url("**/dashboards/?pool=summaries&node=rack1-gpu02&span=1h")
    for chart, lines in {"ttft": ["summaries p95", "summaries p50"], "power": ["rack1-gpu02"]}.items():
        wait_for(lambda: drawn(page, chart), DEADLINE_SECONDS, "a drawn chart")  # noqa: B023 - called at once
        assert [line["name"] for line in drawn(page, chart)] == lines


def test_a_chart_is_a_line_for_a_shell(site: Site, fleet: Fleet, open_page: OpenPage) -> None:
    page = open_page()
    page.goto(f"{site.url}/dashboards/")
    page.locator("#card-kv summary").click()
    expect(page.locator("#curl-kv")).to_contain_text("headworks_engine_kv_cache_usage_ratio")
    expect(page.locator("#curl-kv")).to_contain_text(f"{site.url}/prometheus/api/v1/query_range")


def test_the_page_is_turkish_for_who_reads_turkish(site: Site, fleet: Fleet, open_page: OpenPage) -> None:
    page = open_page(locale="tr-TR")
    page.goto(f"{site.url}/dashboards/?span=1h")
    expect(page.locator("#live")).to_have_text("Canlı")
    expect(page.get_by_role("heading", name="Kuyrukta bekleme")).to_be_visible()
    expect(page.locator("#legend-queue")).to_contain_text("motor ort.")


def test_a_stranger_is_led_to_the_log_in(site: Site, browser: Browser) -> None:
    page = browser.new_context().new_page()
    page.goto(f"{site.url}/dashboards/")
    assert page.url == f"{site.url}/log-in/?next=/dashboards/"


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
    site.process = site.start()
    fleet.catch_up()
    wait_for(lambda: newest_ms(page, "temperature") > before_ms + 10_000, DEADLINE_SECONDS, "points after the restart")
    assert page.evaluate("() => window.untouched") is True
    for line in drawn(page, "temperature"):
        assert {later - earlier for earlier, later in pairwise(line["x"])} == {5_000}
        assert len(line["x"]) == len(line["y"]) == 181
