"""What people do at 3 a.m., in a real browser: from the page that they open to what they wanted to have done."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.services import service_binary
from tests.web.agent import Agent
from tests.web.conftest import OpenPage
from tests.web.pictures import PHONE, log_in
from tests.web.site import PASSWORD, JoinedTarget, Site, running_site

MODEL = "meta-llama/Llama-3.1-8B"
# A stream brings it; on a machine that does other things too that takes a while.
SOON_MS = 30_000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    service_binary("chromium")
    with running_site(tmp_path_factory.mktemp("site")) as running:
        rest = running.rest
        rest.post("/priority-classes", {"name": "interactive", "rank": 10})
        rest.post("/models", {"name": MODEL, "max_context_tokens": 131_072})
        for pool in ("chat", "long"):
            rest.post("/pools", {"name": pool, "model": MODEL})
        rest.post(
            "/routes", {"name": "long", "order": 10, "match": {"min_prompt_tokens": 32_000}, "pools": {"long": 1000}}
        )
        rest.post("/routes", {"name": "rest", "order": 20, "pools": {"chat": 1000}})
        rest.post("/tenants", {"name": "acme", "tpm_limit": 60_000})
        rest.post("/receivers", {"name": "oncall", "url": "https://oncall.invalid/hooks/headworks"})
        yield running


@pytest.fixture(scope="module")
def rack(site: Site) -> Agent:
    agent = Agent(site, "rack-1")
    row = {"name": "llama-a", "node": "rack-1", "pool": "chat", "served_model": MODEL, "url": "http://10.2.0.7:8000"}
    site.rest.post("/engines", row)
    agent.report(engines=[{"name": "llama-a", "state": "up", "version": "0.11.0"}])
    return agent


@pytest.fixture(scope="module")
def gateway(site: Site) -> Iterator[None]:
    joined = JoinedTarget(site, "gateway", "edge-1")
    yield
    joined.stop()


def test_a_person_is_offered_what_the_role_may_do(site: Site, browser: Browser, open_page: OpenPage) -> None:
    stranger = browser.new_context().new_page()
    stranger.goto(f"{site.url}/incidents/")
    stranger.get_by_label("Username").fill("vera")
    stranger.get_by_label("Password").fill("wrong")
    stranger.get_by_role("button", name="Log in").click()
    expect(stranger.get_by_role("alert")).to_be_visible()
    expect(stranger.get_by_label("Username")).to_have_value("vera")
    stranger.get_by_label("Password").fill(PASSWORD)
    stranger.get_by_role("button", name="Log in").click()
    # There, where the person wanted to go.
    expect(stranger.get_by_role("heading", name="Incidents")).to_be_visible()
    stranger.context.close()

    may = {"vera": (0, 0), "omar": (1, 0), "ada": (1, 1)}
    for name, (tenants, people) in may.items():
        page = open_page(name)
        page.goto(f"{site.url}/tenants/")
        expect(page.get_by_role("link", name="New tenant")).to_have_count(tenants)
        page.goto(f"{site.url}/users/")
        expect(page.get_by_role("link", name="New user")).to_have_count(people)


def test_a_person_asks_where_a_request_would_go(site: Site, open_page: OpenPage) -> None:
    page = open_page("vera")
    page.get_by_role("link", name="Routes", exact=True).click()
    page.locator("#try").get_by_label("Model").select_option(MODEL)
    page.get_by_label("Tenant").fill("acme")
    page.get_by_label("Priority class").select_option("interactive")
    page.get_by_label("max_tokens").fill("512")
    page.get_by_label("Prompt tokens").fill("64000")
    page.get_by_role("button", name="Test", exact=True).click()
    tested = page.locator("#tested")
    expect(tested).to_contain_text(re.compile(r"matches\s+long"))
    page.get_by_label("Prompt tokens").fill("800")
    page.get_by_role("button", name="Test", exact=True).click()
    expect(tested).to_contain_text(re.compile(r"matches\s+rest"))
    # Why the one before it did not take the request.
    expect(tested.get_by_role("row", name=re.compile("^long"))).to_contain_text(re.compile("32,?000"))


def test_a_breaker_is_forced_for_a_while_and_is_free_again(
    site: Site, rack: Agent, gateway: None, open_page: OpenPage
) -> None:
    page = open_page("omar")
    page.get_by_role("link", name="Breakers", exact=True).click()
    page.get_by_role("link", name="Force a breaker").click()
    page.get_by_label("Breaker of").select_option("engine/llama-a")
    page.get_by_label("For", exact=True).select_option("other")
    page.get_by_label("Other time").fill("12s")
    page.get_by_role("button", name="Review the change").click()
    page.get_by_label("Reason").fill("answers garbage since 02:40")
    page.locator("button[value=apply]").click()
    in_force = page.locator("#in-force")
    expect(in_force).to_contain_text("answers garbage since 02:40")
    expect(page.locator("#convergence tr", has_text="edge-1")).to_contain_text("applied", timeout=SOON_MS)
    page.evaluate("() => { window.untouched = true; }")
    expect(in_force).to_contain_text("Nothing is forced by hand.", timeout=SOON_MS)
    assert page.evaluate("() => window.untouched") is True


def test_an_xid_becomes_an_incident_that_somebody_acknowledges(site: Site, rack: Agent, open_page: OpenPage) -> None:
    watching, page = open_page("vera"), open_page("omar")
    page.get_by_role("link", name="Incidents").first.click()
    expect(page.locator("#incidents")).to_contain_text("No incident yet.")
    rack.say("xid", rack.uuid(3), "critical", "XID 79 (GPU has fallen off the bus) on GPU 3: reboot the node")
    expect(watching.locator("[data-firing]")).to_contain_text("1", timeout=SOON_MS)
    page.get_by_role("link", name=re.compile("XID 79")).click(timeout=SOON_MS)
    page.get_by_role("link", name="Acknowledge").click()
    page.get_by_label("Reason").fill("on my way to the rack")
    page.locator("button[value=apply]").click()
    expect(page.locator("#summary")).to_contain_text("omar")
    expect(page.locator(".timeline")).to_contain_text("acknowledged by omar: on my way to the rack")
    expect(page.get_by_role("link", name="Acknowledge")).to_have_count(0)
    [incident] = site.rest.get("/incidents")["items"]
    assert incident["acknowledged_by"] == "omar"


def test_a_quota_is_changed_in_turkish_in_the_dark_on_a_phone_without_scripts(site: Site, browser: Browser) -> None:
    context = browser.new_context(
        locale="tr-TR", color_scheme="dark", viewport=PHONE, java_script_enabled=False, is_mobile=True
    )
    page = context.new_page()
    log_in(page, site, "omar")
    page.goto(f"{site.url}/tenants/acme/")
    page.get_by_role("link", name="Düzenle").first.click()
    page.locator("#id_tpm_limit").fill("çok")
    page.locator("button[value=review]").click()
    expect(page.locator("#id_tpm_limit")).to_have_value("çok")
    expect(page.locator("#id_tpm_limit")).to_have_attribute("aria-invalid", "true")
    page.locator("#id_tpm_limit").fill("45000")
    page.locator("button[value=review]").click()
    expect(page.locator("ins")).to_have_text(re.compile(r"45.000"))
    page.locator("#id_reason").fill("gece yarısı yığını")
    page.locator("button[value=apply]").click()
    expect(page.locator("html")).to_have_attribute("lang", "tr")
    expect(page.locator("main")).to_contain_text("gece yarısı yığını")
    context.close()
    assert site.rest.get("/tenants/acme")["tpm_limit"] == 45_000


def test_the_shell_lines_say_the_reason_in_each_call_and_leave_what_it_sends_alone(
    site: Site, open_page: OpenPage
) -> None:
    counter = 'headworks_gateway_requests_total{reason="tpm_limit"}'
    site.rest.post("/rules", {"name": "Refused", "expr": f"rate({counter}[5m]) > 1"})
    page = open_page("omar")
    page.goto(f"{site.url}/rules/Refused/edit/")
    page.locator("#id_expr").fill(f"rate({counter}[5m]) > 2")
    # What follows what is typed has to listen.
    with page.expect_navigation():
        page.locator("button[value=review]").click()
    page.get_by_label("Reason").fill("one is too few")
    call = shlex.split((page.locator("#curl-review").text_content() or "").replace("\\\n", ""))
    assert json.loads(call[call.index("--data") + 1]) == {"expr": f"rate({counter}[5m]) > 2"}
    assert call[-1] == f"{site.url}/api/v1/rules/Refused?reason=one%20is%20too%20few"
    # Two rules change places by two calls.
    page.goto(f"{site.url}/routes/rest/move/up/")
    page.get_by_label("Reason").fill("first")
    lines = page.locator("#curl-review").text_content() or ""
    assert lines.count("curl ") == lines.count("?reason=first'") > 1


def test_who_moves_by_keyboard_stays_where_they_are_when_a_panel_is_loaded_anew(
    site: Site, rack: Agent, open_page: OpenPage
) -> None:
    page = open_page("omar")
    page.goto(f"{site.url}/breakers/")
    force = page.locator("#pool-long").get_by_role("link", name=re.compile("Force"))
    force.focus()
    page.evaluate("() => { document.activeElement.isOld = true; }")
    site.rest.post("/tenants", {"name": "wakes-the-panel"})
    page.wait_for_function(
        "() => ![...document.querySelectorAll('#list a')].some((each) => each.isOld)", timeout=SOON_MS
    )
    expect(force).to_be_focused()
