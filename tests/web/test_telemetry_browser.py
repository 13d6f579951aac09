"""The pages of decisions and of recording rules in a real browser, with a real worker behind them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.services import service_binary, wait_for
from tests.web.conftest import OpenPage, faults_of
from tests.web.deciding import (
    DECISION_PATHS,
    GATEWAY,
    RULE_PATHS,
    SERVED,
    TOO_LONG,
    are_evaluated,
    recording_worker,
    tell_decisions,
)
from tests.web.pictures import PHONE
from tests.web.site import Site, running_site

DEADLINE_SECONDS = 60


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    service_binary("chromium")
    with running_site(tmp_path_factory.mktemp("site")) as running:
        tell_decisions(running)
        yield running


@pytest.fixture(scope="module")
def worker(site: Site) -> Iterator[None]:
    with recording_worker(site):
        wait_for(lambda: are_evaluated(site), DEADLINE_SECONDS, "recording rules that were evaluated")
        yield


def test_a_person_finds_why_a_request_was_refused(site: Site, open_page: OpenPage) -> None:
    page = open_page("vera")
    page.get_by_role("link", name="Decisions").click()
    expect(page.locator("#decisions tbody tr")).to_have_count(8)
    page.get_by_label("Reason").select_option("context_too_long")
    page.get_by_label("Gateway").select_option(GATEWAY)
    page.get_by_role("button", name="Show").click()
    expect(page).to_have_url(re.compile(rf"/decisions/\?.*reason=context_too_long.*gateway={GATEWAY}"))
    page.get_by_role("link", name=TOO_LONG).click()
    expect(page.locator(".stages .ended")).to_have_text(re.compile("count tokens"))
    expect(page.locator(".decision")).to_contain_text("140,002")
    page.get_by_label("Find by x-request-id").fill(SERVED)
    page.get_by_role("button", name="Find").click()
    expect(page.locator(".decision header")).to_contain_text("admitted")
    page.locator("#curl-decision-folded summary").click()
    expect(page.locator("#curl-decision")).to_contain_text(f"{site.url}/api/v1/decisions/{SERVED}")


def test_an_operator_changes_a_rule_and_sees_it_evaluated(site: Site, worker: None, open_page: OpenPage) -> None:
    page = open_page("omar")
    page.goto(f"{site.url}/dashboards/?span=7d")
    page.locator("main").get_by_role("link", name="recording rules").click()
    expect(page.locator("#groups")).to_contain_text(re.compile(r"\d+ ms"))
    page.get_by_role("link", name="Edit").click()
    text = page.get_by_label("Rules (YAML)")
    text.fill("groups:\n- name: own\n  rules:\n  - record: pool:kv:max\n    expr: vector(7)\n")
    page.get_by_role("button", name="Review the change").click()
    expect(page.locator("ins", has_text="vector(7)")).to_be_visible()
    page.get_by_role("button", name="Back to the form").click()
    expect(text).to_have_value(re.compile(r"record: pool:kv:max\n"))
    page.get_by_role("button", name="Review the change").click()
    page.get_by_label("Reason").fill("one rule is enough here")
    page.get_by_role("button", name="Apply").click()
    row = page.locator("#groups tbody tr", has_text="pool:kv:max")
    expect(page.locator("#groups tbody tr")).to_have_count(1)
    # The page asks again by itself.
    expect(row).to_contain_text(re.compile(r"\d+ ms"), timeout=DEADLINE_SECONDS * 1000)
    expect(row.locator("td").last).to_have_text("1")

    page.get_by_role("link", name="Go back to the built-in rules").click()
    page.get_by_label("Reason").fill("and it was not")
    page.get_by_role("button", name="Go back").click()
    expect(page.get_by_role("heading", name="headworks-gpus")).to_be_visible()


def test_pages_fit_a_phone_and_every_field_has_a_name(site: Site, open_page: OpenPage) -> None:
    page = open_page("omar", viewport=PHONE)
    paths = [path for path in (*DECISION_PATHS, *RULE_PATHS) if not path.endswith("id=nothing")]
    assert [fault for path in paths for fault in faults_of(page, site.url + path)] == []


def test_pages_are_turkish_for_who_reads_turkish(site: Site, open_page: OpenPage) -> None:
    page = open_page("vera", locale="tr-TR")
    page.goto(f"{site.url}/decisions/request/?id={TOO_LONG}")
    expect(page.locator(".stages .ended")).to_have_text(re.compile("token sayımı"))
    page.goto(f"{site.url}/recording-rules/")
    expect(page.get_by_role("heading", name="Kayıt kuralları")).to_be_visible()
