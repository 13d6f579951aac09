"""What is asked of every page is asked: a page that has each of the faults is told all of them."""

from __future__ import annotations

from playwright.sync_api import Browser

from tests.web.page_checks import axe_faults, frame_faults
from tests.web.pictures import LOOKS

_FAULTY = """<!doctype html><html lang="en"><head><title> · Headworks</title></head><body><main>
<h1>One</h1><h1>Two</h1><p style="color: #ccc; background: #fff">Pale</p><p style="width: 600px">Wide</p>
<a>nowhere</a><span tabindex="-1"><button tabindex="-1">never reached</button></span>
<input name="nameless"></main></body>"""


def test_each_fault_is_seen(browser: Browser) -> None:
    page = browser.new_page(viewport=LOOKS["phone"]["viewport"])
    page.set_content(_FAULTY)
    assert {fault.partition(":")[0] for fault in axe_faults(page)} == {"color-contrast", "label"}
    assert axe_faults(page, rules=("label",), only="h1") == []
    assert frame_faults(page, LOOKS["turkish"] | LOOKS["phone"]) == [
        "it has no title",
        "its language is en",
        "it has 2 headings",
        "it is 608 px wide",
        "out of reach: <a>nowhere</a>",
        'out of reach: <button tabindex="-1">never reached</button>',
    ]
    page.close()


def test_a_sound_page_has_none(browser: Browser) -> None:
    page = browser.new_page(viewport=LOOKS["phone"]["viewport"])
    page.set_content("<!doctype html><html lang='en'><head><title>Fleet · Headworks</title></head><main><h1>Fleet</h1>")
    assert axe_faults(page) == []
    assert frame_faults(page, LOOKS["phone"]) == []
    page.close()
