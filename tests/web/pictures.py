"""`python -m tests.web.pictures build/pictures`: every page in light, dark, on a phone and in Turkish, and some empty.

Each is judged too, by axe's rules and ours. A page that does not come, or is at fault, ends the command with an error.
docs/pictures holds a few of the pictures.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Error, Page, TimeoutError, ViewportSize, sync_playwright

from tests.programs import PROGRAMS
from tests.web.page_checks import axe_faults, frame_faults
from tests.web.site import PASSWORD, Site, running_site
from tests.web.whole_site import WholeSite, whole_site

DESKTOP: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": DESKTOP, "color_scheme": "light"},
    "dark": {"viewport": DESKTOP, "color_scheme": "dark"},
    "phone": {"viewport": PHONE, "color_scheme": "light", "device_scale_factor": 2},
    "turkish": {"viewport": DESKTOP, "color_scheme": "light", "locale": "tr-TR"},
}
# Panels and charts have come.
SETTLED = """() => document.fonts.status === "loaded" && !document.querySelector(".htmx-request")
    && [...document.querySelectorAll(".graph")].every((chart) => chart.querySelector(".main-svg"))
    && !document.querySelector("#live.none")"""
# What has not, for who reads that a page did not come.
UNSETTLED = """() => [...document.querySelectorAll(".htmx-request, #live.none, #live.bad, .graph:not(:has(.main-svg))")]
    .map((part) => [part.parentElement.id || part.id || part.className, part.innerText.slice(0, 60)].join(": "))"""
# Readings are seldom older than this many pages, or pages would say that they are stale.
_PAGES_A_ROUND = 5
# A page of charts as high as all of them is drawn anew, on a machine that may do other things too.
_SLOW_MS = 120_000
Shoot = Callable[[str], None]


def log_in(page: Page, site: Site, name: str) -> None:
    page.goto(f"{site.url}/log-in/")
    page.locator("#id_username").fill(name)
    page.locator("#id_password").fill(PASSWORD)
    page.locator("form.fields button").click()
    page.wait_for_selector("[data-live]")


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAMS["chromium"].find(), args=["--no-sandbox"])
        yield browser
        browser.close()


def open_page(page: Page, site: Site, path: str) -> None:
    """Go there and wait until it has settled. Raises AssertionError."""
    answer = page.goto(f"{site.url}{path}")
    assert answer is not None
    assert answer.status == 200, f"{path} answers {answer.status}"
    try:
        page.wait_for_function(SETTLED, timeout=_SLOW_MS)
    except TimeoutError as late:
        raise AssertionError(f"{path} does not settle: {page.evaluate(UNSETTLED)}") from late


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    faults: list[str] = []
    with (
        tempfile.TemporaryDirectory(prefix="headworks-pictures-") as folder,
        whole_site(Path(folder)) as whole,
        chromium() as browser,
    ):
        for look, options in LOOKS.items():
            faults += take(browser, whole.site, out, look, options, whole.pages, whole.catch_up)
            whole.catch_up()
            take_moments(browser, whole, out, look, options)
        with tempfile.TemporaryDirectory(prefix="headworks-pictures-") as empty, running_site(Path(empty)) as site:
            faults += take(browser, site, out, "empty", LOOKS["light"], whole.lists)
    print(f"{len(list(out.glob('*.png')))} pictures in {out}")
    if faults:
        raise SystemExit("\n".join(faults))


def take(
    browser: Browser,
    site: Site,
    out: Path,
    look: str,
    options: dict[str, Any],
    pages: dict[str, str],
    catch_up: Callable[[], None] = lambda: None,
) -> list[str]:
    """A picture of each page as an admin sees it; answers what is wrong with them."""
    faults = []
    with in_look(browser, out, look, options) as (page, shoot):
        log_in(page, site, "ada")
        for number, (name, path) in enumerate(pages.items(), 1):
            if number % _PAGES_A_ROUND == 1:
                catch_up()
            try:
                open_page(page, site, path)
                shoot(name)
                found = axe_faults(page, only="main") + frame_faults(page, options)
            except (AssertionError, Error) as error:
                found = [str(error).splitlines()[0]]
            faults += [f"{name}, {look}: {fault}" for fault in found]
            print(f"\r{look}: {number} of {len(pages)}", end="", flush=True)
    print()
    return faults


def take_moments(browser: Browser, whole: WholeSite, out: Path, look: str, options: dict[str, Any]) -> None:
    """What is seen only after a click: forms that refuse, reviews, a change that spreads, secrets."""
    site = whole.site
    with in_look(browser, out, look, options) as (page, shoot):
        page.goto(f"{site.url}/log-in/")
        shoot("moment-log-in")
        log_in(page, site, "ada")
        page.goto(f"{site.url}/tenants/search/edit/")
        page.locator("#id_tpm_limit").fill("-5")
        page.locator("#id_weight").fill("many")
        page.locator("button[value=review]").click()
        shoot("moment-refused")
        page.goto(f"{site.url}/tenants/search/edit/")
        # Another one in each look, so that there is something to show.
        page.locator("#id_tpm_limit").fill(str(20_000 + list(LOOKS).index(look)))
        page.locator("#id_max_parallel_requests").fill("")
        page.locator("button[value=review]").click()
        page.locator("#id_reason").fill("Search floods the short pool since 02:40; halved until the index job ends")
        shoot("moment-review")
        page.locator("button[value=apply]").click()
        page.wait_for_selector("#convergence")
        shoot("moment-spreading")
        page.goto(f"{site.url}/targets/join/")
        page.locator("#id_kind").select_option("node")
        page.locator("#id_name").fill("rack-9")
        page.locator("#id_reason").fill("a new machine in rack 2")
        page.locator("main button.primary").click()
        shoot("moment-join-secret")
        page.goto(f"{site.url}/tenants/search/keys/new/")
        page.locator("#id_label").fill("canary")
        page.locator("#id_reason").fill("canary deploy")
        page.locator("main button.primary").click()
        shoot("moment-key-secret")
        page.reload()
        shoot("moment-key-made-already")
        page.goto(f"{site.url}/tenants/nobody/")
        shoot("moment-not-found")


@contextlib.contextmanager
def in_look(browser: Browser, out: Path, look: str, options: dict[str, Any]) -> Iterator[tuple[Page, Shoot]]:
    context = browser.new_context(**options)
    page = context.new_page()

    def shoot(name: str) -> None:
        """All of the page, with the navigation beside it as long as it is."""
        window: ViewportSize = options["viewport"]
        height = page.evaluate("() => document.documentElement.scrollHeight")
        page.set_viewport_size({**window, "height": max(height, window["height"])})
        page.screenshot(path=out / f"{name}-{look}.png", timeout=_SLOW_MS)
        page.set_viewport_size(window)

    yield page, shoot
    context.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
