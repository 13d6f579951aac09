"""Keys of a tenant: the secret is shown once, and blocking takes a review."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.configs import publisher
from controlplane.core.models import AuditEntry
from controlplane.core.tokens import token_hash
from controlplane.tenants import services
from controlplane.tenants.models import TenantKey
from tests.web.conftest import digest_of, write

NEW = "/tenants/acme/keys/new/"
FORM = "7d2f2f0e-7a3c-4b53-9f0a-7a2b9e1c0d11"


@pytest.fixture
def key(acme: str) -> TenantKey:
    row, _secret = write(lambda unit: services.create_key(unit, acme, {"label": "ranking"}))
    assert isinstance(row, TenantKey)
    return row


def test_a_new_key_is_shown_once_and_stored_as_a_hash(acme: str, admin: Client) -> None:
    answer = admin.post(NEW, {"form_id": FORM, "label": "ranking", "days": "30", "reason": "new service"})
    found = re.search(r'id="secret"[^>]*>(hw-\w{43})<', answer.content.decode())
    assert found
    row = TenantKey.objects.get()
    assert row.key_hash == token_hash(found[1])
    assert row.expires_at is not None
    assert found[1] not in admin.get("/tenants/acme/").content.decode()
    assert "no-store" in answer["Cache-Control"]
    assert found[1] not in str(AuditEntry.objects.latest("pk").after)


def test_loading_the_page_of_a_new_key_anew_makes_no_other(acme: str, admin: Client) -> None:
    offered = re.search(r'name="form_id" value="([0-9a-f-]{36})"', admin.get(NEW).content.decode())
    assert offered
    fields = {"form_id": offered[1], "label": "ranking", "reason": "new service"}
    assert admin.post(NEW, fields).status_code == 200
    again = admin.post(NEW, fields)
    assert again.status_code == 409
    assert "This was made already" in again.content.decode()
    assert 'id="secret"' not in again.content.decode()
    assert 'href="/tenants/acme/"' in again.content.decode()
    assert TenantKey.objects.count() == 1
    assert f'value="{offered[1]}"' not in admin.get(NEW).content.decode()


@pytest.mark.parametrize("form_id", ["", "none"])
def test_a_form_without_its_own_name_makes_no_key(form_id: str, acme: str, admin: Client) -> None:
    assert admin.post(NEW, {"form_id": form_id, "reason": "new service"}).status_code == 422
    assert not TenantKey.objects.exists()


def test_a_rotated_key_works_on_for_the_hours_that_are_given_and_is_rotated_once(key: TenantKey, admin: Client) -> None:
    path = f"/tenants/acme/keys/{key.pk}/rotate/"
    assert path in admin.get("/tenants/acme/").content.decode()
    answer = admin.post(path, {"form_id": FORM, "overlap_seconds": "1.5", "reason": "laptop lost"})
    found = re.search(r'id="secret"[^>]*>(hw-\w{43})<', answer.content.decode())
    assert found
    key.refresh_from_db()
    assert key.expires_at is not None
    assert timedelta(minutes=89) < key.expires_at - timezone.now() <= timedelta(minutes=90)
    assert key.replaced_by is not None
    assert key.replaced_by.key_hash == token_hash(found[1])
    assert path not in admin.get("/tenants/acme/").content.decode()
    again = admin.post(path, {"form_id": FORM.replace("7", "8"), "overlap_seconds": "0", "reason": "once more"})
    assert again.status_code == 422
    assert "was rotated into key" in again.content.decode()
    assert TenantKey.objects.count() == 2


def test_a_key_is_called_by_its_first_characters_in_every_list_and_diff(key: TenantKey, admin: Client) -> None:
    known = f"key {key.prefix}…"
    assert f"<h3>{known}</h3>" in admin.get(f"/tenants/acme/keys/{key.pk}/block/").content.decode()
    publisher.publish()
    write(lambda unit: services.update_key(unit, key.pk, {"blocked": True}))
    publisher.publish()
    for path in ("/tenants/acme/", "/revisions/", "/revisions/1/", "/revisions/2/"):
        page = admin.get(path).content.decode()
        assert known in page, path
        assert key.key_hash not in page, path
    assert f"<h3>{known}</h3>" in admin.get("/revisions/2/").content.decode()


@pytest.mark.parametrize(
    ("fields", "says"),
    [({"reason": ""}, "This field is required."), ({"days": "0", "reason": "x"}, "greater than or equal to 1")],
)
def test_a_key_form_that_is_refused_makes_no_key_and_keeps_what_was_typed(
    fields: dict[str, str], says: str, acme: str, admin: Client
) -> None:
    answer = admin.post(NEW, {"form_id": FORM, "label": "ranking", **fields})
    assert answer.status_code == 422
    assert says in answer.content.decode()
    assert 'value="ranking"' in answer.content.decode()
    assert not TenantKey.objects.exists()


def test_a_key_is_blocked_and_let_in_again_each_after_a_review(key: TenantKey, admin: Client) -> None:
    for verb, blocked in (("block", True), ("unblock", False)):
        path = f"/tenants/acme/keys/{key.pk}/{verb}/"
        page = admin.get(path).content.decode()
        key.refresh_from_db()
        assert key.blocked is not blocked
        digest = re.search(r'name="digest" value="([0-9a-f]+)"', page)
        assert digest
        answer = admin.post(path, {"step": "apply", "digest": digest[1], "reason": "leaked"})
        assert answer.status_code == 302
        key.refresh_from_db()
        assert key.blocked is blocked
    assert "Unblock" not in admin.get("/tenants/acme/").content.decode()


def test_an_operator_of_the_whole_fleet_is_offered_to_block_a_key_and_no_more(key: TenantKey, operator: Client) -> None:
    page = operator.get("/tenants/acme/").content.decode()
    assert f"/keys/{key.pk}/block/" in page
    for verb in (f"{key.pk}/rotate", "new"):
        assert f"/keys/{verb}/" not in page
        assert "needs the role admin; yours is operator" in operator.get(f"/tenants/acme/keys/{verb}/").content.decode()
    review = operator.get(f"/tenants/acme/keys/{key.pk}/block/").content.decode()
    fields = {"step": "apply", "digest": digest_of(review), "reason": "leaked"}
    assert operator.post(f"/tenants/acme/keys/{key.pk}/block/", fields).status_code == 302
    unblock = f"/tenants/acme/keys/{key.pk}/unblock/"
    assert unblock not in operator.get("/tenants/acme/").content.decode()
    assert operator.post(unblock, fields).status_code == 403
    key.refresh_from_db()
    assert key.blocked


def test_an_operator_is_offered_no_first_key(acme: str, operator: Client, admin: Client) -> None:
    assert NEW in admin.get("/tenants/acme/").content.decode()
    assert NEW not in operator.get("/tenants/acme/").content.decode()


def test_a_key_of_another_tenant_is_not_found_under_this_one(key: TenantKey, admin: Client) -> None:
    write(lambda unit: services.create(unit, "other", {}))
    assert admin.get(f"/tenants/other/keys/{key.pk}/block/").status_code == 404
