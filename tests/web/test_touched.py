"""What a review says of the tenants that a dangerous write touches."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client

from controlplane.configs import publisher, stage_asked
from controlplane.core.changes import UnitOfWork
from controlplane.fleet import services as fleet_services
from controlplane.routing.services import ROUTES
from controlplane.tenants import services as tenants
from controlplane.tenants.services import PRIORITY_CLASSES
from controlplane.web.shown import touched
from controlplane.web.views import breakers as breakers_view
from tests.web.conftest import new_target, write
from tests.web.test_access import PAGES, fill

pytestmark = pytest.mark.django_db
EIGHT = [f"team-{number}" for number in range(1, 9)]
NAMED = "It touches the tenants team-1, team-2, team-3, team-4, team-5 and 3 more."


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metrics store tells of which pools and classes it was asked."""

    def of(what: str) -> Any:
        return lambda names: f"acme sent to {what} {', '.join(sorted(names))}." if names else ""

    for place in (touched, breakers_view):
        monkeypatch.setattr(place, "tenants_of", of("pools"))
    monkeypatch.setattr(touched, "tenants_of_classes", of("classes"))


@pytest.fixture
def served(acme: str) -> str:
    """Revision 1: a pool behind a route, for all, and one more pool that nothing leads to."""

    def make(unit: UnitOfWork) -> None:
        fleet_services.MODELS.create(unit, "m/a", {"max_context_tokens": 4096})
        for pool in ("chat", "spare"):
            fleet_services.POOLS.create(unit, pool, {"model": "m/a"})
        ROUTES.create(unit, "first", {"order": 10, "pools": {"chat": 1000}})

    write(make)
    publisher.publish()
    return acme


def whom(page: str) -> str:
    found = re.search(r'<span id="whom">(.*?)</span>', page, re.DOTALL)
    assert found, page
    return unescape(found[1])


def back_to(client: Client, number: int) -> str:
    publisher.publish()
    return whom(client.get(f"/revisions/{number}/rollback/").content.decode())


def imported(client: Client, text: str, **typed: str) -> str:
    typed = {"document": f"format: headworks/1\n{text}", "step": "review", **typed}
    return whom(client.post("/configuration-import/", typed).content.decode())


def of_eight(unit: UnitOfWork) -> None:
    for name in EIGHT:
        tenants.create(unit, name, {"tpm_limit": 9})


def route(unit: UnitOfWork, **values: Any) -> None:
    ROUTES.create(unit, "second", {"order": 5, **values})


@pytest.mark.parametrize(
    ("since", "said"),
    [
        (of_eight, NAMED),
        (lambda unit: tenants.update(unit, "acme", {"tpm_limit": None}), "It touches tenant acme."),
        (lambda unit: route(unit, pools={"spare": 1000}), "acme sent to pools spare."),
        (lambda unit: route(unit, pools={"spare": 1000}, match={"tenants": ["acme"]}), "It touches tenant acme."),
        (lambda unit: route(unit, reject="closed"), "acme sent to pools chat, spare."),
        (lambda unit: route(unit, reject="closed", match={"models": ["m/a"]}), "acme sent to pools chat, spare."),
        (lambda unit: ROUTES.delete(unit, "first"), "acme sent to pools chat."),
        (lambda unit: ROUTES.update(unit, "first", {"pools": {"spare": 1000}}), "acme sent to pools chat, spare."),
        (lambda unit: fleet_services.POOLS.create(unit, "wide", {"model": "m/a"}), "acme sent to pools wide."),
        (
            lambda unit: fleet_services.MODELS.update(unit, "m/a", {"max_context_tokens": 2048}),
            "acme sent to pools chat, spare.",
        ),
        (lambda unit: PRIORITY_CLASSES.create(unit, "tried", {"rank": 5}), "acme sent to classes tried."),
    ],
)
def test_a_rollback_says_which_tenants_it_touches(since: Any, said: str, served: str, operator: Client) -> None:
    write(since)
    assert back_to(operator, 1) == said


def test_many_entries_ask_the_database_no_more_often_than_few(served: str, django_assert_max_num_queries: Any) -> None:
    refused = {f"r-{number}": {"order": number, "reject": "closed"} for number in range(300)}
    engines = {f"e-{number}": {"pool": "chat"} for number in range(300)}
    with django_assert_max_num_queries(5):
        touched.of_patch({"routes": refused, "engines": engines, "session_limits": {"short": None}})


def test_a_route_that_refuses_an_alias_is_about_the_pools_of_its_model(served: str) -> None:
    write(lambda unit: fleet_services.ALIASES.create(unit, "small", {"model": "m/a"}))
    route_of_alias = {"order": 1, "reject": "closed", "match": {"models": ["small"]}}
    assert touched.of_patch({"routes": {"no": route_of_alias}}).pools == {"chat", "spare"}


def test_limits_of_sessions_touch_the_tenants_that_have_them(served: str, operator: Client) -> None:
    def limited(unit: UnitOfWork) -> None:
        tenants.SESSION_LIMITS.create(unit, "short", {"max_depth": 3})
        tenants.update(unit, "acme", {"session_limits": "short"})

    write(limited)
    publisher.publish()
    write(lambda unit: tenants.SESSION_LIMITS.update(unit, "short", {"max_depth": 1}))
    assert back_to(operator, 2) == "It touches tenant acme."


def test_a_whole_configuration_says_which_tenants_it_touches(served: str, admin: Client) -> None:
    write(of_eight)
    assert imported(admin, "tenants: {acme: {tpm_limit: 60000}}", allow_removals="on") == NAMED
    assert imported(admin, "routes: {}") == "acme sent to pools chat."
    kept = "pools: {chat: {model: m/a}}"
    assert imported(admin, kept) == "acme sent to pools spare."


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ({"tenants": {"acme": {"tpm_limit": 7}}}, "It touches tenant acme."),
        ({"tenants": {name: {} for name in EIGHT}}, NAMED),
        ({"routes": {"second": {"order": 5, "pools": {"spare": 1000}}}}, "acme sent to pools spare."),
        ({"routes": {"first": None}}, "acme sent to pools chat."),
        ({"pools": {"spare": None}}, "acme sent to pools spare."),
    ],
)
def test_taking_a_stage_back_says_which_tenants_it_touches(
    patch: dict[str, Any], said: str, served: str, operator: Client
) -> None:
    new_target("gateway", "edge-1")
    publisher.publish()
    asked = {"patch": patch, "targets": ["gateway/edge-1"]}
    stage = write(lambda unit: stage_asked.begin(unit, asked, allow_removals=True))
    page = operator.get(f"/stages/{stage.pk}/take-back/").content.decode()
    assert whom(page) == said
    assert "danger-button" in page


@pytest.mark.parametrize(
    ("path", "typed", "said"),
    [
        (
            "/tenants/acme/edit/",
            {"weight": "1", "tpm_limit": "60000", "time_zone": "UTC", "blocked": "on"},
            "It touches tenant acme.",
        ),
        (
            "/breakers/overrides-new/",
            {"subject": "pool/spare", "state": "open", "lasts": "900"},
            "acme sent to pools spare.",
        ),
    ],
)
def test_a_form_that_takes_something_away_says_which_tenants_it_touches(
    path: str, typed: dict[str, str], said: str, served: str, operator: Client
) -> None:
    assert said in whom(operator.post(path, {**typed, "step": "review"}).content.decode())


def test_what_nobody_asked_for_lately_is_said_to_be_so(
    served: str, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(touched, "tenants_of", lambda _pools: "")
    write(lambda unit: ROUTES.delete(unit, "first"))
    assert back_to(operator, 1) == "In the last hour no tenant sent a request there."


def test_where_nothing_is_served_differently_no_tenant_is_touched() -> None:
    assert touched.in_words({}) == "No tenant is touched by it at once."


@pytest.mark.both_databases
@pytest.mark.timeout(600)
def test_every_review_of_a_dangerous_write_names_tenants_or_says_that_none_is_touched(acme: str, admin: Client) -> None:
    names, seen, silent = fill(acme), 0, []
    for name, (path, _needed) in PAGES.items():
        page = admin.get(path.format(**names)).content.decode()
        if 'class="danger-button" name="step" value="apply"' in page:
            seen += 1
            if not re.search(r'<span id="whom">[^<]*\w', page):
                silent.append(name)
    assert silent == []
    assert seen > 20
