"""Takes pictures of the dashboard in every look, to be judged by eye: `python -m tests.dashboards.pictures OUT`.

docs/pictures/dashboard.png is taken of the running demo instead.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import expect, sync_playwright

from tests.dashboards.site import NODES, STEP_MS, Fleet
from tests.programs import PROGRAMS
from tests.web.pictures import log_in
from tests.web.site import running_site

_WIDE = {"width": 1600, "height": 1000}
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
                page.goto(f"{site.url}/dashboards/?span=1h")
                expect(page.locator("#card-power .legend strong").first).to_be_visible()
                page.locator("#temperature").hover()
                name = "dashboard" if look == "light" else f"dashboard-{look}"
                page.screenshot(path=out / f"{name}.png", full_page=True)
                for span in ("24h", "7d"):
                    page.goto(f"{site.url}/dashboards/?span={span}")
                    expect(page.locator("#card-power .legend strong").first).to_be_visible()
                    page.screenshot(path=out / f"{name}-{span}.png", full_page=True)
            page.goto(f"{site.url}/dashboards/?pool=nothing&node=nothing")
            expect(page.locator("#live.good")).to_be_visible()
            page.screenshot(path=out / "dashboard-empty.png", full_page=True)
            browser.close()


def push_an_hour(fleet: Fleet) -> None:
    """The last node says nothing for six minutes in it."""
    now_ms = int(time.time()) * 1000
    begin_ms, silent_ms, back_ms = now_ms - 3_600_000, now_ms - 1_500_000, now_ms - 1_140_000
    fleet.push(range(begin_ms, silent_ms, STEP_MS))
    fleet.push(range(silent_ms, back_ms, STEP_MS), silent=NODES[-1:])
    fleet.push(range(back_ms, now_ms + 1, STEP_MS))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
