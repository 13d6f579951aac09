"""Who keeps tenants' keys: admins, and operators of a tenant; others let a key end, and no more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from controlplane.configs import publisher
from controlplane.core.models import AuditEntry, Role
from controlplane.tenants.models import Tenant, TenantKey
from tests.controlplane.core.people import person, token_of

pytestmark = pytest.mark.django_db


def in_days(days):
    return (datetime.now(UTC) + timedelta(days=days)).isoformat(timespec="milliseconds")


@pytest.fixture
def key(admin):
    """The number of a key of acme that ends in ten days."""
    admin.post("/tenants", {"name": "acme"})
    return admin.post("/tenants/acme/keys", {"label": "app", "expires_at": in_days(10)}).json()["item"]["id"]


def keepers_writes(key):
    """Every write of a key that is its keepers', and the path of the problem that others are told."""
    return [
        ("POST", "/tenants/acme/keys", {}, "/"),
        ("POST", f"/keys/{key}/rotate", {"overlap_seconds": 60}, "/"),
        ("PATCH", f"/keys/{key}", {"label": "mine"}, "/label"),
        ("PATCH", f"/keys/{key}", {"expires_at": in_days(11)}, "/expires_at"),
        ("PATCH", f"/keys/{key}", {"expires_at": None}, "/expires_at"),
        ("PATCH", f"/keys/{key}", {"blocked": True, "label": "mine"}, "/label"),
        ("DELETE", f"/keys/{key}", None, "/"),
        ("DELETE", "/tenants/acme", None, "/"),
    ]


def check_refused(rest, key):
    """Every write of a keeper is refused by `role` with what would be right, also dry, and nothing of it stays."""
    before, entries = list(TenantKey.objects.values()), AuditEntry.objects.count()
    for method, path, body, field in keepers_writes(key):
        for dry_run in ("", "?dry_run=true"):
            refused = rest.call(method, path + dry_run, body)
            told = refused.json()
            assert (refused.status_code, told["code"]) == (403, "role"), (method, path)
            assert [(one["path"], one["rule"]) for one in told["problems"]] == [(field, "role")]
            assert "ask an admin" in told["problems"][0]["message"]
            assert "needs the role admin; yours is operator" in told["detail"]
    assert (list(TenantKey.objects.values()), AuditEntry.objects.count()) == (before, entries)


def test_an_operator_of_the_whole_fleet_keeps_no_keys(operator, key):
    check_refused(operator, key)


def test_a_token_of_some_tenants_hands_its_maker_no_keys(key):
    # Whoever has the role operator can make one.
    rest = token_of(person(Role.OPERATOR), tenants=["acme"])
    for method, path, body, _ in keepers_writes(key):
        # Of a token of some tenants, none deletes a tenant.
        code = "tenant_scope" if path == "/tenants/acme" else "role"
        assert rest.call(method, path, body).json()["code"] == code, (method, path)
    assert TenantKey.objects.count() == 1


def test_an_operator_of_the_whole_fleet_brings_a_keys_end_forward_and_blocks_it_for_good(operator, key):
    soon = in_days(9)
    assert operator.patch(f"/keys/{key}", {"expires_at": soon}).json()["item"]["expires_at"] is not None
    assert operator.patch(f"/keys/{key}", {"expires_at": in_days(10)}).json()["code"] == "role"
    blocked = operator.patch(f"/keys/{key}", {"blocked": True, "expires_at": in_days(8)})
    assert (blocked.status_code, blocked.json()["item"]["blocked"]) == (200, True)
    refused = operator.patch(f"/keys/{key}", {"blocked": False})
    assert (refused.status_code, refused.json()["problems"][0]["path"]) == (403, "/blocked")
    assert TenantKey.objects.get().blocked


def test_an_operator_gives_an_end_to_a_key_that_has_none(operator, admin, key):
    admin.patch(f"/keys/{key}", {"expires_at": None})
    assert operator.patch(f"/keys/{key}", {"expires_at": in_days(1)}).status_code == 200


def test_a_write_that_changes_nothing_is_nobodys_alone(operator, key):
    assert operator.patch(f"/keys/{key}", {"label": "app", "blocked": False}).json()["changed"] is False


def test_an_operator_deletes_a_tenant_that_has_no_keys(operator, admin, key):
    admin.delete(f"/keys/{key}")
    assert operator.delete("/tenants/acme").status_code == 200
    assert not Tenant.objects.exists()


@pytest.mark.parametrize(
    "keeper",
    [
        lambda: token_of(person(Role.ADMIN)),
        lambda: token_of(person(Role.ADMIN), tenants=["acme"]),
        lambda: token_of(person(Role.OPERATOR, ["acme", "beta"])),
        lambda: token_of(person(Role.OPERATOR, ["acme", "beta"]), tenants=["acme"]),
    ],
    ids=["admin", "admin's narrow token", "operator of tenants", "their narrow token"],
)
def test_keepers_make_rotate_extend_unblock_and_delete(keeper, key):
    rest = keeper()
    rest.patch(f"/keys/{key}", {"blocked": True})
    for method, path, body, status in (
        ("PATCH", f"/keys/{key}", {"blocked": False, "label": "mine", "expires_at": None}, 200),
        ("POST", "/tenants/acme/keys", {}, 201),
        ("POST", f"/keys/{key}/rotate", {"overlap_seconds": 60}, 201),
        ("DELETE", f"/keys/{key}", None, 200),
    ):
        assert rest.call(method, path, body).status_code == status, (method, path)


@pytest.mark.parametrize("tenants", [None, ["acme"]])
def test_viewers_change_no_key(tenants, key):
    rest = token_of(person(Role.VIEWER, tenants))
    for method, path, body, _ in [*keepers_writes(key), ("PATCH", f"/keys/{key}", {"blocked": True}, "")]:
        assert rest.call(method, path, body).status_code == 403, (method, path)


def test_an_admins_token_of_the_role_operator_keeps_no_keys(key):
    check_refused(token_of(person(Role.ADMIN), role=Role.OPERATOR), key)


def test_a_rollback_that_would_delete_a_key_with_its_tenant_is_an_admins(operator, admin, key):
    # What people do by one document is judged as what they do one by one.
    admin.delete("/tenants/acme")
    publisher.publish()
    earlier = admin.get("/revisions").json()["items"][0]["number"]
    admin.post("/tenants", {"name": "acme"})
    admin.post("/tenants/acme/keys", {})
    publisher.publish()
    refused = operator.post(f"/revisions/{earlier}/rollback", {})
    assert (refused.status_code, refused.json()["code"]) == (403, "role")
    assert admin.post(f"/revisions/{earlier}/rollback", {}).status_code == 200
    assert not TenantKey.objects.exists()
