"""What is asked of every page in a browser: axe's rules, a title, a language, names, a width, a quiet console."""

from __future__ import annotations

import contextlib
from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page, TimeoutError

_FOLLOWS_MS = 15_000
# Those that stop somebody. What axe cannot decide by itself it calls incomplete, and is looked at by eye.
IMPACTS = ("serious", "critical")
_AXE = """async ([context, options]) => (await axe.run(context, options)).violations
    .map(({id, impact, nodes}) => [id, impact, nodes.map((node) => node.target.join(" ") + ": " +
        (node.any[0] ?? node.all[0] ?? node.none[0])?.message)])"""
# Whatever a person may act on: it can be reached by Tab, and says what it is.
_UNREACHABLE = """() => [...document.querySelectorAll("a, button, input:not([type=hidden]), select, textarea, summary")]
    .filter((each) => each.checkVisibility() && !each.disabled && (each.tabIndex < 0 || each.matches("a:not([href])")))
    .map((each) => each.outerHTML.slice(0, 80))"""
_FRAME = """() => ({
    title: document.title, lang: document.documentElement.lang, headings: document.querySelectorAll("h1").length,
    width: document.documentElement.scrollWidth,
})"""


def axe_faults(page: Page, *, rules: tuple[str, ...] = (), only: str = "") -> list[str]:
    """axe's serious faults of the page as it looks now, by rule and place. `only`: within the element of a selector."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = list(rules)
    # axe judges no text in an SVG, and takes seconds for a chart's thousands of parts.
    context = {"include": [only or "html"], "exclude": [".main-svg"]}
    found = page.evaluate(_AXE, [context, options])
    return [f"{rule}: {' | '.join(places[:3])}" for rule, impact, places in found if impact in IMPACTS]


def frame_faults(page: Page, look: dict[str, Any]) -> list[str]:
    """What is wrong with a page's title, language, headings, controls or width. `look`: the options of its context."""
    # Charts follow the window's size after a moment.
    with contextlib.suppress(TimeoutError):
        page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth", timeout=_FOLLOWS_MS)
    seen = page.evaluate(_FRAME)
    language = str(look.get("locale", "en"))[:2]
    wrong = {
        "it has no title": not seen["title"].replace("· Headworks", "").strip(),
        f"its language is {seen['lang']}": seen["lang"] != language,
        f"it has {seen['headings']} headings": seen["headings"] != 1,
        f"it is {seen['width']} px wide": seen["width"] > look["viewport"]["width"],
    }
    out_of_reach = page.evaluate(_UNREACHABLE)
    return [*(text for text, is_so in wrong.items() if is_so), *(f"out of reach: {each}" for each in out_of_reach)]
