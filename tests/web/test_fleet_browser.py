"""The fleet's pages in a real browser: a fault shows on an open page, and a cordon goes from click to every target."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.services import service_binary
from tests.web.agent import Agent
from tests.web.conftest import OpenPage, faults_of
from tests.web.faulty_fleet import (
    ACT_PATHS,
    ask_for_acts,
    end_newest_act,
    fall_off_the_bus,
    fill_fleet,
)
from tests.web.pictures import PHONE
from tests.web.site import JoinedTarget, Site, running_site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    service_binary("chromium")
    with running_site(tmp_path_factory.mktemp("site")) as running:
        yield running


@pytest.fixture(scope="module")
def agents(site: Site) -> dict[str, Agent]:
    return {agent.name: agent for agent in fill_fleet(site)}


@pytest.fixture(scope="module")
def gateway(site: Site) -> Iterator[None]:
    joined = JoinedTarget(site, "gateway", "edge-1")
    yield
    joined.stop()


def test_a_node_is_cordoned_with_a_reason(
    site: Site, agents: dict[str, Agent], gateway: None, open_page: OpenPage
) -> None:
    page = open_page("omar")
    page.goto(f"{site.url}/fleet/")
    page.get_by_role("link", name="rack-3").first.click()
    expect(page.locator("#gpus tbody tr")).to_have_count(8)
    page.get_by_role("link", name="Cordon", exact=True).first.click()
    page.get_by_label("Reason").fill("PSU of the rack is being changed")
    page.get_by_role("button", name="Cordon the node").click()
    expect(page.locator("#health")).to_contain_text("PSU of the rack is being changed")
    expect(page.locator("#convergence tr", has_text="edge-1")).to_contain_text("applied", timeout=15_000)
    [row] = [node for node in site.rest.get("/nodes")["items"] if node["name"] == "rack-3"]
    assert (row["cordoned"], row["cordon_reason"]) == (True, "PSU of the rack is being changed")

    page.get_by_role("link", name="Uncordon", exact=True).first.click()
    page.get_by_label("Reason").fill("changed")
    page.get_by_role("button", name="Uncordon the node").click()
    expect(page.locator("#health")).not_to_contain_text("PSU")

    # Whoever else cordons it: the lever of an open page is the one that it has now.
    lever = page.locator("#levers a")
    expect(lever).to_have_text("Cordon")
    site.rest.post("/nodes/rack-3/cordon")
    expect(lever).to_have_text("Uncordon", timeout=15_000)
    site.rest.post("/nodes/rack-3/uncordon")


def test_the_version_of_an_engine_is_not_broken_inside_a_word(
    site: Site, agents: dict[str, Agent], open_page: OpenPage
) -> None:
    page = open_page("omar", viewport={"width": 1280, "height": 800})
    page.goto(f"{site.url}/fleet/")
    expect(page.locator(".engines td.title .plain").first).to_be_visible()
    # At once: the panel is replaced while it is open.
    lines = """() => {
        const place = document.querySelector(".engines td.title .plain");
        place.textContent = "vLLM 0.11.0.dev12+simulated";
        const text = document.createRange();
        text.selectNodeContents(place);
        return text.getClientRects().length;
    }"""
    assert page.evaluate(lines) == 1


def test_a_fault_reaches_an_open_page_and_its_incident_tells_the_story(
    site: Site, agents: dict[str, Agent], gateway: None, open_page: OpenPage
) -> None:
    page = open_page("vera")
    page.goto(f"{site.url}/fleet/")
    row = page.locator("#nodes tbody tr", has_text="rack-2")
    expect(row).to_contain_text("ok")
    expect(page.locator("[data-firing]")).to_be_hidden()
    page.evaluate("() => { window.untouched = true; }")
    fall_off_the_bus(agents["rack-2"])
    expect(row).to_contain_text("cordoned", timeout=15_000)
    expect(row.locator(".gpus .bad")).to_have_count(1, timeout=15_000)
    # What needs a person stands first.
    expect(page.locator("#nodes tbody tr").first).to_contain_text("rack-2")
    expect(page.locator("[data-firing]")).to_contain_text("3", timeout=15_000)
    assert page.evaluate("() => window.untouched") is True

    row.get_by_role("link", name=re.compile("^XID 79")).click()
    line = page.locator(".timeline")
    expect(line).to_contain_text("started")
    expect(line).to_contain_text("is cordoned by the policy")
    expect(line.get_by_role("link", name=re.compile(r"^Revision \d+$"))).to_be_visible()
    expect(page.locator("#deliveries")).to_contain_text("oncall")
    page.set_viewport_size(PHONE)
    assert faults_of(page, page.url) == []


def test_an_act_goes_from_click_to_its_end_on_an_open_page(
    site: Site, agents: dict[str, Agent], open_page: OpenPage
) -> None:
    agent = agents["rack-1"]
    ask_for_acts(site, agent)
    page = open_page("omar")
    page.goto(f"{site.url}/fleet/rack-1/")
    page.get_by_text("How it runs").click()
    page.evaluate("() => document.addEventListener('htmx:afterSwap', () => { window.loadedAnew = true; })")
    site.rest.patch("/engines/llama-a", {"kv_capacity_tokens": 410_000})
    page.wait_for_function("() => window.loadedAnew", timeout=15_000)
    # What was opened stays so.
    expect(page.get_by_text("max-num-seqs: 128")).to_be_visible()

    page.get_by_role("navigation").get_by_role("link", name="Acts", exact=True).click()
    page.get_by_role("link", name="Ask for an act").click()
    page.get_by_role("link", name="llama-a").click()
    page.get_by_role("link", name="Put to sleep").click()
    page.get_by_label("Level").select_option("2")
    page.get_by_role("button", name="Review the change").click()
    page.get_by_label("Reason").fill("memory for the batch of tonight")
    page.get_by_role("button", name="Ask for it").click()
    row = page.locator("#acts tbody tr").first
    expect(row).to_contain_text("memory for the batch of tonight")
    expect(row).to_contain_text("waiting")
    page.evaluate("() => { window.untouched = true; }")
    end_newest_act(site, agent)
    expect(row).to_contain_text("done", timeout=15_000)
    assert page.evaluate("() => window.untouched") is True

    page.set_viewport_size(PHONE)
    assert [fault for path in ACT_PATHS.values() for fault in faults_of(page, f"{site.url}{path}")] == []
