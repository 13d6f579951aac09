"""Log-in by the OpenID provider as a person sees it: a real browser, a real process, a provider on another host."""

from __future__ import annotations

import json
from collections.abc import Iterator

import oidc_provider_mock
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web.conftest import faults_of
from tests.web.pictures import PHONE
from tests.web.site import Site, running_site

NAME = "Lab ID"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    people = [
        oidc_provider_mock.User(sub="grace", claims={"preferred_username": "grace", "groups": ["acme-ops"]}),
        oidc_provider_mock.User(sub="mallory", claims={"preferred_username": "mallory"}),
    ]
    with (
        oidc_provider_mock.run_server_in_thread(user_claims=people) as provider,
        running_site(tmp_path_factory.mktemp("site")) as running,
    ):
        running.process.stop()
        running.environment |= {
            "HEADWORKS_OIDC_ISSUER": f"http://localhost:{provider.server_port}",
            "HEADWORKS_OIDC_NAME": NAME,
            "HEADWORKS_OIDC_CLIENT_SECRET": "of-the-site",
            "HEADWORKS_OIDC_ROLES": json.dumps({"acme-ops": {"role": "operator", "tenants": ["acme"]}}),
        }
        running.start()
        running.rest.post("/tenants", {"name": "acme"})
        running.rest.post("/tenants", {"name": "beta"})
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A browser of its own; at the end, nothing in its console."""
    complaints: list[str] = []
    context = browser.new_context(viewport=PHONE)
    opened = context.new_page()
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("console", lambda line: complaints.append(line.text) if "Content Security Policy" in line.text else None)
    yield opened
    context.close()
    assert complaints == []


def test_a_person_comes_in_by_the_button_and_leaves_by_both_doors(site: Site, page: Page) -> None:
    assert faults_of(page, f"{site.url}/log-in/?next=/tenants/acme/") == []
    page.get_by_role("link", name=f"Log in with {NAME}").click()
    page.get_by_role("button", name="grace").click()
    expect(page).to_have_url(f"{site.url}/tenants/acme/")
    expect(page.get_by_role("banner")).to_contain_text("grace")
    page.goto(f"{site.url}/tenants/")
    expect(page.get_by_role("link", name="acme")).to_be_visible()
    expect(page.get_by_text("beta")).to_have_count(0)

    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Logged out")).to_be_visible()
    page.get_by_role("link", name=f"Log out at {NAME} too").click()
    expect(page).not_to_have_url(f"{site.url}/log-out/")
    page.get_by_role("button").first.click()
    expect(page).to_have_url(f"{site.url}/log-in/")
    page.goto(f"{site.url}/tenants/")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()


def test_who_gets_no_role_reads_what_to_do_and_may_try_again(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/log-in/")
    page.get_by_role("link", name=f"Log in with {NAME}").click()
    page.get_by_role("button", name="mallory").click()
    expect(page.get_by_role("heading", name="Not logged in")).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text("none of your values of “groups”")
    page.get_by_role("link", name="Try again").click()
    page.get_by_role("button", name="grace").click()
    expect(page).to_have_url(f"{site.url}/tenants/")


def test_who_is_denied_there_is_told_so(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/log-in/provider/")
    page.get_by_role("button", name="Deny").click()
    expect(page.get_by_role("main")).to_contain_text(f"{NAME} did not let you in")
