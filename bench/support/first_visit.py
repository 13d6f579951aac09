"""What a browser loads of a page for the first time: bytes over the wire, compressed as the server sends them."""

from __future__ import annotations

import shutil
from typing import Any

from playwright.sync_api import sync_playwright

# Streams stay open: what is loaded is what has come until the page looks ready.
READY_MS = 60_000


def bytes_of(url: str, path: str, cookie: tuple[str, str], ready: str) -> int:
    """Of the page at `path` until the selector `ready` is there and one second more. Raises RuntimeError."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        raise RuntimeError("chromium is not installed here")
    loaded: list[float] = []

    def finished(event: dict[str, Any]) -> None:
        loaded.append(event["encodedDataLength"])

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        context = browser.new_context()
        context.add_cookies([{"name": cookie[0], "value": cookie[1], "url": url}])
        page = context.new_page()
        session = context.new_cdp_session(page)
        session.send("Network.enable")
        session.on("Network.loadingFinished", finished)
        page.goto(f"{url}{path}", timeout=READY_MS)
        page.wait_for_selector(ready, timeout=READY_MS)
        page.wait_for_timeout(1000)
        browser.close()
    return round(sum(loaded))
