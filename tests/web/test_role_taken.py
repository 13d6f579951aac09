"""A role that is taken away while pages are open: their next write, their panels, their streams."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.test import AsyncClient, Client

from controlplane.core import users
from controlplane.core.models import AuditEntry, Role, User
from controlplane.tenants.models import Tenant
from controlplane.web import live
from dashboards import stream
from tests.web.conftest import write
from tests.web.test_twice import review

DEADLINE_SECONDS = 60
EDIT = "/tenants/acme/edit/"
UNSENT = "Your log-in had ended, so what you sent last was not carried out."
TAKEN: list[dict[str, Any]] = [{"role": "viewer"}, {"tenants": ["acme"]}, {"is_active": False}]


def take(change: dict[str, Any], name: str = "operator-person") -> None:
    write(lambda unit: users.update(unit, name, change))


@pytest.mark.django_db
@pytest.mark.parametrize("change", TAKEN, ids=str)
def test_the_next_write_is_refused_and_says_so(change: dict[str, Any], acme: str, operator: Client) -> None:
    sent = review(operator, EDIT, {"weight": "7"})
    take(change)
    answer = operator.post(EDIT, sent, follow=True)
    assert answer.redirect_chain == [(f"/log-in/?next={EDIT}&unsent=1", 302)]
    assert UNSENT in answer.content.decode()
    assert UNSENT not in operator.get(EDIT, follow=True).content.decode()
    assert Tenant.objects.get().weight != 7
    assert not AuditEntry.objects.filter(actor="operator-person").exists()


@pytest.mark.django_db
def test_logged_in_anew_it_is_refused_by_the_role_that_is_left(acme: str, operator: Client) -> None:
    sent = review(operator, EDIT, {"weight": "7"})
    take({"role": "viewer"})
    operator.force_login(User.objects.get(username="operator-person"))
    answer = operator.post(EDIT, sent)
    assert answer.status_code == 403
    assert "This page needs the role operator; yours is viewer." in answer.content.decode()
    assert Tenant.objects.get().weight != 7


@pytest.mark.django_db
def test_a_panel_that_comes_anew_leads_to_the_log_in(acme: str, operator: Client) -> None:
    panel = {"hx-request": "true"}
    assert "/routes-panel/" in operator.get("/routes/").content.decode()
    assert operator.get("/routes-panel/", headers=panel).content
    take({"role": "viewer"})
    answer = operator.get("/routes-panel/", headers=panel)
    assert (answer["HX-Refresh"], answer.content) == ("true", b"")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", ["/live", "/dashboards/live"])
@pytest.mark.parametrize("change", TAKEN, ids=str)
async def test_its_streams_end(change: dict[str, Any], path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (live, stream):
        monkeypatch.setattr(module, "LOOK_SECONDS", 0)
    monkeypatch.setattr(live, "PING_SECONDS", 0.05)
    person = await User.objects.acreate(username="operator-person", role=Role.OPERATOR)
    client = AsyncClient()
    await client.aforce_login(person)
    answer: Any = await client.get(path)
    chunks = answer.streaming_content
    async with asyncio.timeout(DEADLINE_SECONDS):
        assert (await anext(chunks)).startswith(b"retry: ")
        await sync_to_async(take)(change)
        async for _chunk in chunks:
            pass
    again: Any = await client.get(path)
    assert again.status_code == 401
    # Of the thread that the test's own look at the database ran in.
    await sync_to_async(connections.close_all)()
