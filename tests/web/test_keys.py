"""Keys of a tenant: the secret is shown once, and blocking takes a review."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from controlplane.core.models import AuditEntry
from controlplane.core.tokens import token_hash
from controlplane.tenants import services
from controlplane.tenants.models import TenantKey
from tests.web.conftest import write

NEW = "/tenants/acme/keys/new/"


@pytest.fixture
def key(acme: str) -> TenantKey:
    row, _secret = write(lambda unit: services.create_key(unit, acme, {"label": "ranking"}))
    assert isinstance(row, TenantKey)
    return row


def test_a_new_key_is_shown_once_and_stored_as_a_hash(acme: str, operator: Client) -> None:
    answer = operator.post(NEW, {"label": "ranking", "days": "30", "reason": "new service"})
    found = re.search(r'id="secret"[^>]*>(hw-\w{43})<', answer.content.decode())
    assert found
    row = TenantKey.objects.get()
    assert row.key_hash == token_hash(found[1])
    assert row.expires_at is not None
    assert found[1] not in operator.get("/tenants/acme/").content.decode()
    assert "no-store" in answer["Cache-Control"]
    assert found[1] not in str(AuditEntry.objects.latest("pk").after)


@pytest.mark.parametrize(
    ("fields", "says"),
    [({"reason": ""}, "This field is required."), ({"days": "0", "reason": "x"}, "greater than or equal to 1")],
)
def test_a_key_form_that_is_refused_makes_no_key_and_keeps_what_was_typed(
    fields: dict[str, str], says: str, acme: str, operator: Client
) -> None:
    answer = operator.post(NEW, {"label": "ranking", **fields})
    assert answer.status_code == 422
    assert says in answer.content.decode()
    assert 'value="ranking"' in answer.content.decode()
    assert not TenantKey.objects.exists()


def test_a_key_is_blocked_and_let_in_again_each_after_a_review(key: TenantKey, operator: Client) -> None:
    for verb, blocked in (("block", True), ("unblock", False)):
        path = f"/tenants/acme/keys/{key.pk}/{verb}/"
        page = operator.get(path).content.decode()
        key.refresh_from_db()
        assert key.blocked is not blocked
        digest = re.search(r'name="digest" value="([0-9a-f]+)"', page)
        assert digest
        answer = operator.post(path, {"step": "apply", "digest": digest[1], "reason": "leaked"})
        assert answer.status_code == 302
        key.refresh_from_db()
        assert key.blocked is blocked
    assert "Unblock" not in operator.get("/tenants/acme/").content.decode()


def test_a_key_of_another_tenant_is_not_found_under_this_one(key: TenantKey, operator: Client) -> None:
    write(lambda unit: services.create(unit, "other", {}))
    assert operator.get(f"/tenants/other/keys/{key.pk}/block/").status_code == 404
