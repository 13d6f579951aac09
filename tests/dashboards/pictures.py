"""Takes pictures of the dashboards in every look, to be judged by eye: `python -m tests.dashboards.pictures OUT`.

docs/pictures/dashboard.png is taken of the running demo instead.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect, sync_playwright

from dashboards.charts import LAYERS, Layer
from tests.dashboards.site import NODES, STEP_MS, Fleet
from tests.programs import PROGRAMS
from tests.web.pictures import log_in
from tests.web.site import running_site

_WIDE = {"width": 1600, "height": 1000}
SPANS_SHOWN = ("span=1h", "span=7d")
# More than most charts can be chosen by.
CHOSEN = "span=1h&pool=chat&tenant=search&node=rack1-gpu01"
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": _WIDE, "color_scheme": "light"},
    "dark": {"viewport": _WIDE, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light", "device_scale_factor": 2},
    "turkish": {"viewport": _WIDE, "color_scheme": "light", "locale": "tr-TR"},
}


def main(out: Path) -> None:
    expect.set_options(timeout=30_000)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="headworks-pictures-") as folder, running_site(Path(folder)) as site:
        fleet = Fleet(site)
        push_an_hour(fleet)
        fleet.record_a_week()
        with sync_playwright() as playwright:
            chromium = PROGRAMS["chromium"].find()
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            for look, options in LOOKS.items():
                page = browser.new_context(**options).new_page()
                log_in(page, site, "vera")
                for layer in LAYERS:
                    for query in (*SPANS_SHOWN, *((CHOSEN,) if look == "light" else ())):
                        take(page, f"{site.url}/dashboards/{layer.path}?{query}", layer)
                        chosen = query.replace("&", "-").replace("=", "-")
                        page.screenshot(path=out / f"{look}-{layer.name}-{chosen}.png", full_page=True)
            page.goto(f"{site.url}/dashboards/?pool=nothing&node=nothing")
            expect(page.locator("#live.good")).to_be_visible()
            page.screenshot(path=out / "empty.png", full_page=True)
            browser.close()


def take(page: Page, address: str, layer: Layer) -> None:
    """Open a layer, and wait until its first and its last chart are drawn."""
    page.goto(address)
    for chart in (layer.charts[0], layer.charts[-1]):
        expect(page.locator(f"#card-{chart.name} :is(.legend strong, .annotation)").first).to_be_attached()


def push_an_hour(fleet: Fleet) -> None:
    """The last node says nothing for six minutes in it."""
    now_ms = int(time.time()) * 1000
    begin_ms, silent_ms, back_ms = now_ms - 3_600_000, now_ms - 1_500_000, now_ms - 1_140_000
    fleet.push(range(begin_ms, silent_ms, STEP_MS))
    fleet.push(range(silent_ms, back_ms, STEP_MS), silent=NODES[-1:])
    fleet.push(range(back_ms, now_ms + 1, STEP_MS))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
