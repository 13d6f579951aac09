"""The pages in a real browser, against a real web process and real targets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from controlplane.rest_client import Rest
from tests.services import service_binary
from tests.web.conftest import OpenPage, faults_of
from tests.web.pictures import PHONE, log_in
from tests.web.site import JoinedTarget, Site, running_site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    service_binary("chromium")
    with running_site(tmp_path_factory.mktemp("site")) as running:
        running.rest.post("/tenants", {"name": "acme", "tpm_limit": 60_000})
        running.rest.post("/tenants", {"name": "search", "tpm_limit": 5_000})
        nights = {"days": ["friday", "saturday"], "from": "22:00", "until": "06:30", "tpm_limit": 90_000}
        hourly = {"name": "hourly", "time_zone": "America/Argentina/ComodRivadavia", "schedule": {"nights": nights}}
        running.rest.post("/tenants", {**hourly, "tpm_limit": 60_000, "daily_token_budget": 20_000_000})
        running.rest.post("/tenants/hourly/temporary-limits", {"tpm_limit": 120_000, "expires_in_seconds": 7200})
        yield running


@pytest.fixture(scope="module")
def targets(site: Site) -> Iterator[list[JoinedTarget]]:
    joined = [JoinedTarget(site, "gateway", "edge-1"), JoinedTarget(site, "gateway", "edge-2")]
    joined.append(JoinedTarget(site, "node", "rack-1"))
    yield joined
    for target in joined:
        target.stop()


def set_quota(page: Page, site: Site, tenant: str, tokens: str, reason: str) -> None:
    page.goto(f"{site.url}/tenants/{tenant}/edit/")
    page.get_by_label("Tokens per minute").fill(tokens)
    page.get_by_role("button", name="Review the change").click()
    page.get_by_label("Reason").fill(reason)
    page.get_by_role("button", name="Apply").click()


def test_a_quota_goes_from_click_to_applied_on_all_without_a_reload(
    site: Site, targets: list[JoinedTarget], open_page: OpenPage
) -> None:
    page = open_page("omar")
    set_quota(page, site, "acme", "20000", "floods the pool")
    page.evaluate("() => { window.untouched = true; }")
    expect(page.get_by_text("Applied on all 3 targets")).to_be_visible(timeout=15_000)
    assert page.evaluate("() => window.untouched") is True
    expect(page.locator("#limits")).to_contain_text("20,000")
    # The list of changes learns its revision, and the header that all run it.
    expect(page.locator("#history a").first).to_have_text(re.compile(r"^\d+$"))
    expect(page.locator("[data-live=whole]")).to_contain_text("3/3")
    assert site.rest.get("/tenants/acme")["tpm_limit"] == 20_000


def test_a_change_by_someone_else_reaches_an_open_page(
    site: Site, targets: list[JoinedTarget], open_page: OpenPage
) -> None:
    page = open_page("vera")
    page.goto(f"{site.url}/revisions/")
    newest = page.locator("tbody tr").first
    expect(newest).to_be_visible()
    Rest(site.url, site.rest.token, "raised by a script").patch("/tenants/search", {"tpm_limit": 7_777})
    expect(newest).to_contain_text("raised by a script", timeout=15_000)


def test_a_rollback_goes_from_click_to_applied_on_all(
    site: Site, targets: list[JoinedTarget], open_page: OpenPage
) -> None:
    page = open_page("omar")
    set_quota(page, site, "acme", "33000", "before the mistake")
    expect(page.locator("[data-convergence=applied]")).to_be_visible(timeout=15_000)
    set_quota(page, site, "acme", "3", "a mistake")
    page.locator("#convergence a").click()
    expect(page.locator("#diff")).to_contain_text("Tokens per minute")
    page.get_by_role("link", name="Take it back").click()
    expect(page.locator("ins")).to_have_text("33,000")
    page.get_by_label("Reason").fill("three is too few")
    page.get_by_role("button", name="Roll back").click()
    expect(page.get_by_text("Applied on all 3 targets")).to_be_visible(timeout=15_000)
    expect(page.locator("#convergence")).to_contain_text(re.compile(r"Revision \d+ has the content of revision \d+\."))
    assert site.rest.get("/tenants/acme")["tpm_limit"] == 33_000


def test_a_refusal_appears_with_its_reasons_on_an_open_page(
    site: Site, targets: list[JoinedTarget], open_page: OpenPage
) -> None:
    page = open_page("vera")
    page.goto(f"{site.url}/targets/")
    expect(page.locator("tbody tr").first).to_contain_text("applied", timeout=15_000)
    refusing = JoinedTarget(site, "gateway", "edge-9", refuses="search")
    try:
        row = page.locator("tr", has_text="edge-9")
        expect(row).to_contain_text("refused", timeout=15_000)
        expect(row.locator(".problems")).to_contain_text("this gateway cannot load the tokenizer of its model")
        expect(page.locator("[data-live=trouble]")).to_contain_text("3/4")
    finally:
        refusing.stop()
        [row_id] = [each["id"] for each in site.rest.get("/targets")["items"] if each["name"] == "edge-9"]
        site.rest.post(f"/targets/{row_id}/revoke")


def test_the_shell_line_says_the_reason_that_is_typed(site: Site, open_page: OpenPage) -> None:
    page = open_page("ada")
    page.goto(f"{site.url}/tenants/search/keys/new/")
    page.get_by_label("Reason").fill("it's a canary & more")
    page.locator(".curl summary").click()
    expect(page.locator(".curl pre")).to_contain_text("?reason=it%27s%20a%20canary%20%26%20more'")
    expect(page.locator(".curl")).to_contain_text("headworks create-token ada LABEL --role admin")


def test_a_new_key_is_copied_by_its_button(site: Site, open_page: OpenPage) -> None:
    page = open_page("ada", permissions=["clipboard-read", "clipboard-write"])
    page.goto(f"{site.url}/tenants/search/keys/new/")
    page.get_by_label("Reason").fill("canary deploy")
    page.get_by_role("button", name="Make the key").click()
    page.get_by_role("button", name="Copy", exact=True).click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("() => navigator.clipboard.readText()") == page.locator("#secret").inner_text()


def test_loading_the_page_of_a_new_key_anew_makes_no_other(site: Site, browser: Browser) -> None:
    # Not by `open_page`: the browser reports the refusal in its console.
    page = browser.new_context().new_page()
    log_in(page, site, "ada")
    page.goto(f"{site.url}/tenants/search/keys/new/")
    page.get_by_label("Reason").fill("canary deploy")
    page.get_by_role("button", name="Make the key").click()
    expect(page.locator("#secret")).to_be_visible()
    keys = len(site.rest.get("/tenants/search/keys")["items"])
    page.reload()
    expect(page.get_by_role("heading", name="This was made already")).to_be_visible()
    assert len(site.rest.get("/tenants/search/keys")["items"]) == keys


def test_the_search_narrows_the_list_while_typing(site: Site, open_page: OpenPage) -> None:
    page = open_page("vera")
    page.goto(f"{site.url}/tenants/")
    expect(page.locator("#tenants tbody tr")).to_have_count(3)
    page.get_by_role("searchbox").press_sequentially("sea")
    expect(page.locator("#tenants tbody tr")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"\?q=sea$"))
    expect(page.get_by_role("searchbox")).to_be_focused()


def test_the_language_switch_holds_on_the_next_page(site: Site, open_page: OpenPage) -> None:
    page = open_page("vera")
    page.goto(f"{site.url}/tenants/")
    page.get_by_role("button", name="Türkçe").click()
    expect(page.get_by_role("heading", name="Kiracılar")).to_be_visible()
    page.get_by_role("link", name="Hedefler", exact=True).click()
    expect(page.locator("html")).to_have_attribute("lang", "tr")


def test_it_is_dark_where_the_system_is(site: Site, open_page: OpenPage) -> None:
    page = open_page("vera")

    def brightness(scheme: Literal["dark", "light"]) -> int:
        page.emulate_media(color_scheme=scheme)
        color = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in re.findall(r"\d+", color)[:3])

    assert brightness("dark") < 150 < 600 < brightness("light")


HOURLY_PAGES = ("", "edit/", "temporary-limits/", "temporary-limits/end/")


def test_the_pages_of_limits_by_the_hour_fit_a_phone(site: Site, open_page: OpenPage) -> None:
    page = open_page("ada", viewport=PHONE)
    faults = [faults_of(page, f"{site.url}/tenants/hourly/{path}") for path in HOURLY_PAGES]
    assert not any(faults), faults


def test_a_quota_is_changed_by_keyboard_alone(site: Site, open_page: OpenPage) -> None:
    page = open_page("omar")
    page.goto(f"{site.url}/tenants/search/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    press_tab_until(page, "Edit")
    page.keyboard.press("Enter")
    page.wait_for_url("**/edit/")
    press_tab_until(page, "", "id_tpm_limit")
    page.keyboard.press("Control+a")
    page.keyboard.type("4321")
    page.keyboard.press("Enter")
    page.wait_for_selector("#review")
    press_tab_until(page, "", "id_reason")
    page.keyboard.type("by keyboard")
    page.keyboard.press("Enter")
    page.wait_for_url("**/tenants/search/?change=*")
    assert site.rest.get("/tenants/search")["tpm_limit"] == 4321


def test_the_skip_link_leads_into_the_content(site: Site, open_page: OpenPage) -> None:
    page = open_page("omar")
    page.goto(f"{site.url}/overview/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("main :focus")).to_have_count(1)


def press_tab_until(page: Page, text: str, element_id: str = "", tabs_max: int = 90) -> None:
    for _ in range(tabs_max):
        page.keyboard.press("Tab")
        found = page.evaluate("() => [document.activeElement.textContent.trim(), document.activeElement.id]")
        if (element_id and found[1] == element_id) or (text and found[0] == text):
            return
    raise AssertionError(f"{text or element_id} cannot be reached by Tab")


def test_a_browser_that_is_logged_out_elsewhere_is_led_to_the_log_in(site: Site, browser: Browser) -> None:
    page = browser.new_context().new_page()
    log_in(page, site, "vera")
    page.goto(f"{site.url}/targets/")
    other = page.context.new_page()
    other.goto(f"{site.url}/tenants/")
    other.get_by_role("button", name="Log out").click()
    other.wait_for_url("**/log-in/")
    Rest(site.url, site.rest.token, "wakes the open page").patch("/tenants/search", {"weight": 3})
    page.bring_to_front()
    page.wait_for_url("**/log-in/?next=/targets/", timeout=20_000)


@pytest.mark.timeout(300)
def test_an_open_page_says_that_the_server_is_away_and_of_when_it_is_and_follows_it_again(
    site: Site, browser: Browser
) -> None:
    # Not by `open_page`: the browser reports the lost stream in its console.
    page = browser.new_context().new_page()
    log_in(page, site, "vera")
    pill = page.locator("[data-live]")
    expect(pill).to_have_attribute("data-live", re.compile("whole|partial|trouble"))
    site.process.stop()
    expect(page.locator("[data-live=lost]")).to_contain_text("no live data", timeout=15_000)
    # Its panels ask by their own clocks.
    says = re.compile(r"This could not be loaded anew\. It is of \d\d:\d\d:\d\d UTC\.")
    expect(page.locator("main .late > .late-note").first).to_have_text(says, timeout=60_000)
    site.start()
    expect(pill).to_have_attribute("data-live", re.compile("whole|partial|trouble"), timeout=20_000)
    expect(page.locator("main .late, main .late-note")).to_have_count(0, timeout=90_000)
