"""Lists of what a fleet may have many of: a page holds a part, a search finds the rest, and rows cost no query each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from controlplane.alerts.pipeline.silencing import DAYS
from controlplane.alerts.services.maintenance_windows import MAINTENANCE_WINDOWS
from controlplane.alerts.services.rules import RULES
from controlplane.configs.hub import Hub, hub
from controlplane.core import sessions
from controlplane.core.changes import UnitOfWork
from controlplane.core.models import Role, User
from controlplane.fleet.services import MODELS, POOLS
from controlplane.routing.services import ROUTES
from controlplane.tenants import services as tenants
from controlplane.tenants.services import CACHE_POLICIES, PRIORITY_CLASSES, SESSION_LIMITS
from controlplane.web import kept
from controlplane.web.listed import ROWS_PER_PAGE, Wanted, listed_of, named_by, some
from controlplane.web.shown.alert_rules import ROWS_PER_PAGE as RULES_PER_PAGE
from tests.web.alerting import MATCHERS, quiet
from tests.web.asking import page
from tests.web.conftest import write
from tests.web.diagnosed import policy
from tests.web.hardware import node, receiver

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]
# Path, and what precedes a row's name in the page's parameters.
LISTS = {
    "/tenants/": "",
    "/tenants/acme/": "",
    "/users/": "",
    "/priority-classes/": "",
    "/caches/": "",
    "/session-limits/": "",
    "/models/": "",
    "/pools/": "",
    "/routes/": "",
    "/breakers/": "",
    "/rules/": "",
    "/receivers/": "",
    "/silences/": "",
    "/maintenance-windows/": "",
    "/alert-routes/": "",
    "/diagnosis/levers/": "policies_",
}
PANELS = ["/priority-classes-panel/", "/caches-panel/", "/session-limits-panel/", "/pools-panel/", "/routes-panel/"]
QUERIES_MAX = 10


@pytest.fixture(autouse=True)
def own_store(settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path


def name_of(number: int) -> str:
    return f"row-{number:03}"


def fill(numbers: Sequence[int]) -> None:
    """A row of each noun for each number, all of the same name."""

    def make(unit: UnitOfWork) -> None:
        for number in numbers:
            name = name_of(number)
            tenants.create(unit, name, {})
            tenants.create_key(unit, "acme", {"label": name})
            PRIORITY_CLASSES.create(unit, name, {"rank": number})
            CACHE_POLICIES.create(unit, name, {"exact": {}})
            SESSION_LIMITS.create(unit, name, {"max_iterations": 50})
            MODELS.create(unit, name, {"max_context_tokens": 8192})
            POOLS.create(unit, name, {"model": name})
            ROUTES.create(unit, name, {"order": number, "reject": "none serves it"})
            RULES.create(unit, name.replace("row", "Row"), {"expr": "up == 0"})

    write(make)
    for number in numbers:
        User.objects.create(username=name_of(number), role=Role.VIEWER)
        receiver(name_of(number))
        quiet(name_of(number))
        policy(name_of(number))


def rows_in(text: str) -> set[str]:
    """Without those that a form beside the list offers."""
    listed = re.sub(r"<option.*?</option>", "", text)
    return {found.lower() for found in re.findall(r"\b[Rr]ow-\d{3}\b", listed)}


def test_more_rows_cost_no_more_queries(acme: str, viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do any cost more than ten in a process whose hub runs, where what the frame shows is read once a change."""

    def queries() -> dict[str, int]:
        found = {}
        for path in [*LISTS, *PANELS]:
            # The first read after a change also takes that into memory.
            page(viewer, path)
            with CaptureQueriesContext(connection) as captured:
                page(viewer, path)
            found[path] = len(captured)
        return found

    # A page seen long after the one before is noted in the log-in.
    monkeypatch.setattr(sessions, "_SEEN_STEP_SECONDS", 3600)
    fill(range(2))
    few = queries()
    # With those that the fixtures made, a page full.
    fill(range(2, ROWS_PER_PAGE - 1))
    many = queries()
    assert {path: (few[path], many[path]) for path in few if many[path] > few[path]} == {}
    monkeypatch.setattr(Hub, "running", True)
    monkeypatch.setattr(kept, "KEPT_SECONDS", 3600)
    hub.note_change()
    shared = queries()
    hub.note_change()
    assert {path: count for path, count in shared.items() if count > QUERIES_MAX} == {}


def test_a_page_holds_a_part_and_the_next_one_goes_on(acme: str, viewer: Client) -> None:
    # More than a page of rules, whose pages are larger.
    fill(range(RULES_PER_PAGE + 20))
    for path, prefix in LISTS.items():
        first = page(viewer, path)
        second = page(viewer, f"{path}?{prefix}page=2")
        on_first, on_second = rows_in(first), rows_in(second)
        assert ROWS_PER_PAGE - 2 <= len(on_first) <= RULES_PER_PAGE, path
        assert on_second, path
        if path != "/alert-routes/":
            # That page also lists the inhibitions, of which the address says nothing.
            assert not on_first & on_second, path
        assert f"{prefix}page=2#" in first, path
        assert len(first) < 200_000, path


def test_a_search_finds_what_is_on_no_page(acme: str, viewer: Client) -> None:
    fill(range(3))
    for path, prefix in LISTS.items():
        found = page(viewer, f"{path}?{prefix}q=ow-002")
        assert f'name="{prefix}q" value="ow-002"' in found, path
        assert "row-002" in rows_in(found), path
        nothing = page(viewer, f"{path}?{prefix}q=%3Cb%3E%2741")
        assert "Nothing here holds “&lt;b&gt;&#x27;41”." in nothing, path
        assert "<b>" not in nothing, path


def test_an_address_without_sense_shows_the_nearest_page(acme: str, viewer: Client) -> None:
    fill(range(2))
    for path, prefix in LISTS.items():
        for asked in ("page=0", "page=-1", "page=x", "page=999999999999999999999", "page=7", "q=%00"):
            assert "row-001" in rows_in(page(viewer, f"{path}?{prefix}{asked}")), (path, asked)


def test_the_rules_in_a_state_are_shown_alone(viewer: Client) -> None:
    write(lambda unit: RULES.create(unit, "Fine", {"expr": "up == 0"}))
    write(lambda unit: RULES.create(unit, "Broken", {"expr": "up == 0"}))
    RULES.queryset().filter(name="Broken").update(last_error="the store is away")
    shown = page(viewer, "/rules/")
    assert 'href="?state=failed"' in shown
    broken = page(viewer, "/rules/?state=failed")
    assert "/rules/Broken/" in broken
    assert "/rules/Fine/" not in broken
    assert "2 rules" in broken
    assert "No rule is like that now." in page(viewer, "/rules/?state=pending")


def test_pages_are_counted_and_end() -> None:
    numbers = list(range(25))
    first, last = listed_of(numbers, Wanted("a b"), 10), listed_of(numbers, Wanted(page=9), 10)
    assert (first.rows, first.first, first.last, first.found) == (numbers[:10], 1, 10, 25)
    assert (first.before, first.after) == ("", "?q=a+b&page=2")
    assert (last.rows, last.first, last.before, last.after) == (numbers[20:], 21, "?page=2", "")
    assert listed_of(numbers, Wanted(page=2), 10).before == "?"
    assert listed_of([], Wanted(page=3)).rows == []


def test_the_first_of_many_and_who_names_what() -> None:
    assert some([1, 2, 3], 2) == ([1, 2], 1)
    assert some([1], 2) == ([1], 0)
    assert named_by([("faq", "b"), ("faq", "a"), ("docs", "c")]) == {"faq": ["a", "b"], "docs": ["c"]}


def test_windows_that_are_on_are_counted_beyond_a_page(viewer: Client) -> None:
    always = {"days": list(DAYS), "starts": "00:00", "ends": "00:00"}

    def make(unit: UnitOfWork) -> None:
        for number in range(ROWS_PER_PAGE + 5):
            MAINTENANCE_WINDOWS.create(unit, name_of(number), {"matchers": MATCHERS, **always, "enabled": number > 1})

    write(make)
    assert f"{ROWS_PER_PAGE + 3} maintenance windows are on now, too." in page(viewer, "/silences/")


def test_an_act_is_asked_of_a_node_on_any_page_and_found_by_its_engine(operator: Client) -> None:
    for number in range(ROWS_PER_PAGE + 5):
        node(name_of(number), engines=["llama-x"] if number == 53 else [])
    first, second = page(operator, "/acts-new/"), page(operator, "/acts-new/?page=2")
    assert len(rows_in(first)) == ROWS_PER_PAGE
    assert rows_in(second) == {name_of(ROWS_PER_PAGE + at) for at in range(5)}
    assert rows_in(page(operator, "/acts-new/?q=LLAMA")) == {name_of(53)}
    assert "?engine=llama-x" in page(operator, "/acts-new/?q=row-053")
    assert "Nothing here holds “row-9”." in page(operator, "/acts-new/?q=row-9")
