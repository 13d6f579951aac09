"""`python -m tests.web.pictures build/pictures`: all pages: light, dark, Turkish, on a phone."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests.programs import PROGRAMS
from tests.web.site import PASSWORD, JoinedTarget, Site, running_site

DESKTOP, PHONE = {"width": 1200, "height": 800}, {"width": 390, "height": 844}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": DESKTOP, "color_scheme": "light"},
    "dark": {"viewport": DESKTOP, "color_scheme": "dark"},
    "phone": {"viewport": PHONE, "color_scheme": "light", "device_scale_factor": 2},
    "turkish": {"viewport": DESKTOP, "color_scheme": "light", "locale": "tr-TR"},
}


def log_in(page: Page, site: Site, name: str) -> None:
    page.goto(f"{site.url}/log-in/")
    page.locator("#id_username").fill(name)
    page.locator("#id_password").fill(PASSWORD)
    page.locator("form.fields button").click()
    page.wait_for_url("**/fleet/")


def fill_site(site: Site) -> list[JoinedTarget]:
    """A small fleet: tenants with and without limits, keys, a target that refuses."""
    rest = site.rest
    rest.post("/priority-classes", {"name": "interactive", "rank": 10})
    rest.post("/priority-classes", {"name": "batch", "rank": 90})
    rest.post("/models", {"name": "meta-llama/Llama-3.1-8B", "max_context_tokens": 131_072})
    rest.post("/pools", {"name": "llama-8b-short", "model": "meta-llama/Llama-3.1-8B"})
    rest.post(
        "/engines",
        {
            "name": "rack2-gpu07-0",
            "url": "http://10.2.0.7:8000",
            "kind": "vllm",
            "pool": "llama-8b-short",
            "served_model": "meta-llama/Llama-3.1-8B",
        },
    )
    targets = [JoinedTarget(site, "gateway", f"edge-{i}") for i in (1, 2, 3)]
    targets.append(JoinedTarget(site, "node", "rack2-gpu07"))
    limits = {"tpm_limit": 60_000, "rpm_limit": 600, "max_parallel_requests": 32}
    rest.post("/tenants", {"name": "search", **limits, "weight": 4, "models": ["meta-llama/Llama-3.1-8B"]})
    rest.post("/tenants", {"name": "support-bot", "tpm_limit": 2_400_000, "default_priority_class": "interactive"})
    rest.post("/tenants", {"name": "nightly-summaries", "tpm_limit": 500_000, "priority_classes": ["batch"]})
    rest.post("/tenants", {"name": "trial", "tpm_limit": 5_000, "blocked": True})
    for label in ("ranking service", "offline evaluation"):
        rest.post("/tenants/search/keys", {"label": label})
    rest.post("/tenants/trial/keys", {"label": "workshop"})
    return targets


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="headworks-pictures-") as folder, running_site(Path(folder)) as site:
        targets = fill_site(site)
        with sync_playwright() as playwright:
            chromium = PROGRAMS["chromium"].find()
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            for look, options in LOOKS.items():
                take(browser, site, out, look, options)
            targets.append(JoinedTarget(site, "gateway", "edge-4", refuses="search"))
            for look, options in LOOKS.items():
                take_refusal(browser, site, out, look, options)
            browser.close()
        for target in targets:
            target.stop()
    print(f"{len(list(out.glob('*.png')))} pictures in {out}")


def take(browser: Browser, site: Site, out: Path, look: str, options: dict[str, Any]) -> None:
    """All pages in one look. The quota that it changes differs by look, so that there is always something to show."""
    context = browser.new_context(**options)
    page = context.new_page()

    def shoot(name: str) -> None:
        page.screenshot(path=out / f"{name}-{look}.png", full_page=True)

    page.goto(f"{site.url}/log-in/")
    shoot("login")
    log_in(page, site, "ada")
    page.goto(f"{site.url}/tenants/")
    shoot("tenants")
    page.goto(f"{site.url}/tenants/?q=nobody")
    shoot("tenants-none")
    page.goto(f"{site.url}/tenants-new/")
    shoot("tenant-new")
    page.goto(f"{site.url}/tenants/search/edit/")
    page.locator("#id_tpm_limit").fill("-5")
    page.locator("#id_weight").fill("many")
    page.locator("button[value=review]").click()
    shoot("tenant-edit-refused")
    page.goto(f"{site.url}/tenants/search/edit/")
    page.locator("#id_tpm_limit").fill(str(20_000 + list(LOOKS).index(look)))
    page.locator("#id_max_parallel_requests").fill("")
    page.locator("button[value=review]").click()
    page.locator("#id_reason").fill("Search floods the short pool since 02:40; halved until the index job ends")
    shoot("tenant-review")
    page.locator("button[value=apply]").click()
    page.wait_for_selector("[data-convergence=applied]")
    shoot("tenant")
    if look == "light":
        # The one that docs/pictures holds.
        page.screenshot(path=out / "tenant.png")
    page.locator("#convergence a").click()
    shoot("revision")
    page.goto(f"{site.url}/revisions/")
    shoot("revisions")
    newest = int(page.locator("tbody td.title a").first.inner_text())
    page.goto(f"{site.url}/revisions/1/rollback/")
    shoot("rollback-refused")
    page.goto(f"{site.url}/revisions/{newest - 1}/rollback/")
    page.locator("#id_reason").fill("The index job has ended")
    page.locator(".curl summary").click()
    shoot("rollback")
    page.locator("button[value=apply]").click()
    page.wait_for_selector("[data-convergence=applied]")
    shoot("rolled-back")
    page.goto(f"{site.url}/targets/")
    shoot("targets")
    page.goto(f"{site.url}/targets/join/")
    shoot("join")
    page.locator("#id_kind").select_option("node")
    page.locator("#id_name").fill("rack2-gpu08")
    page.locator("#id_reason").fill("a new machine in rack 2")
    page.locator("main button.primary").click()
    shoot("join-secret")
    page.goto(f"{site.url}/tenants/search/keys/new/")
    page.locator("#id_label").fill("canary")
    page.locator("#id_reason").fill("canary deploy")
    shoot("key-new")
    page.locator("main button.primary").click()
    shoot("key-secret")
    page.reload()
    shoot("key-made-already")
    page.goto(f"{site.url}/revisions/{newest + 2}/")
    shoot("revision-key")
    page.goto(f"{site.url}/tenants/nobody/")
    shoot("not-found")
    context.close()


def take_refusal(browser: Browser, site: Site, out: Path, look: str, options: dict[str, Any]) -> None:
    context = browser.new_context(**options)
    page = context.new_page()
    log_in(page, site, "vera")
    page.goto(f"{site.url}/targets/")
    page.wait_for_selector(".problems")
    page.screenshot(path=out / f"targets-refused-{look}.png", full_page=True)
    context.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
