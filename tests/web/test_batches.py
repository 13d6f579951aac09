"""The page of batches: how far each is, and an end to one."""

from __future__ import annotations

import pytest
from django.test import Client

from controlplane.batches.models import Batch, Status
from controlplane.core.models import AuditEntry, Role, User
from tests.web.batches import batch_of
from tests.web.conftest import digest_of


def page(client: Client, path: str = "/batches/") -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return answer.content.decode()


def test_it_shows_how_far_a_batch_is_and_what_keeps_it(viewer: Client) -> None:
    batch = batch_of("acme", said="the folder of batches: No space left on device")
    shown = page(viewer)
    assert batch.pk in shown
    for part in ("in progress", "50 %", "590", "acme", "No space left on device", "/api/v1/batches"):
        assert part in shown
    assert f"/batches/{batch.pk}/cancel/" not in shown


def test_a_batch_that_failed_says_why(viewer: Client) -> None:
    error = {"code": "empty_file", "message": "the file has no line", "param": None, "line": None}
    batch_of("acme", status=Status.FAILED, errors=[error], total=0)
    assert "the file has no line" in page(viewer)


def test_it_is_narrowed_and_paged(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.web.views.batches.ROWS_PER_PAGE", 2)
    made = [batch_of("acme") for _ in range(3)] + [batch_of("beta", status=Status.COMPLETED)]
    assert made[3].pk in page(viewer, "/batches/?tenant=beta")
    assert "No batch is like that" in page(viewer, "/batches/?tenant=beta&status=failed")
    first = page(viewer, "/batches/?tenant=acme")
    assert made[2].pk in first
    assert made[0].pk not in first
    assert f"/batches/?tenant=acme&amp;before={made[1].pk}" in first
    assert made[0].pk in page(viewer, f"/batches/?tenant=acme&before={made[1].pk}")


def test_an_operator_cancels_one_and_the_audit_has_it(operator: Client) -> None:
    batch = batch_of("acme")
    address = f"/batches/{batch.pk}/cancel/"
    assert address in page(operator)
    asked = operator.get(address)
    form = {"step": "apply", "reason": "they asked for it", "digest": digest_of(asked.content.decode())}
    assert operator.post(address, form).status_code == 302
    assert Batch.objects.get(pk=batch.pk).status == Status.CANCELLING
    entry = AuditEntry.objects.get(noun="batch")
    assert (entry.key, entry.reason, (entry.after or {})["status"]) == (batch.pk, "they asked for it", "cancelling")
    assert address not in page(operator)


def test_people_of_a_tenant_see_theirs_alone(db: None) -> None:
    own, others = batch_of("acme"), batch_of("beta")
    client = Client()
    client.force_login(User.objects.create(username="tess", role=Role.OPERATOR, tenants=["acme"]))
    shown = page(client)
    assert own.pk in shown
    assert others.pk not in shown
    assert client.get(f"/batches/{others.pk}/cancel/").status_code == 404
