from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from controlplane.core.changes import sections
from controlplane.core.models import AuditEntry
from controlplane.core.tokens import token_hash
from controlplane.tenants.models import TenantKey
from tests.controlplane.core.configuration import compiled


@pytest.fixture
def acme(operator):
    operator.post("/tenants", {"name": "acme"})


@pytest.mark.usefixtures("acme")
def test_a_key_is_shown_once_and_stored_as_a_hash(operator):
    made = operator.post("/tenants/acme/keys", {"label": "laptop"})
    assert made.status_code == 201
    secret = made.json()["secret"]
    assert secret.startswith("hw-")
    row = TenantKey.objects.get()
    assert row.key_hash == token_hash(secret)
    assert made.json()["item"]["prefix"] == secret[:8]
    assert compiled("keys", row.key_hash) == {"tenant": "acme", "prefix": secret[:8], "blocked": False}
    stored = str([(entry.before, entry.after) for entry in AuditEntry.objects.all()])
    for answer in (operator.get("/tenants/acme/keys"), operator.get(f"/keys/{row.pk}"), operator.get("/audit")):
        stored += answer.content.decode()
    assert secret not in stored
    assert row.key_hash not in stored


@pytest.mark.usefixtures("acme")
def test_a_dry_run_makes_no_key_and_shows_no_secret(operator):
    answer = operator.post("/tenants/acme/keys?dry_run=true", {}).json()
    assert answer["secret"] is None
    assert not TenantKey.objects.exists()


@pytest.mark.usefixtures("acme")
def test_a_key_is_blocked_and_unblocked(operator):
    key = operator.post("/tenants/acme/keys", {}).json()["item"]["id"]
    digest = TenantKey.objects.get().key_hash
    blocked = operator.patch(f"/keys/{key}", {"blocked": True}).json()
    assert blocked["patch"] == {"keys": {digest: {"blocked": True}}}
    assert operator.patch(f"/keys/{key}", {"blocked": False}).json()["item"]["blocked"] is False
    assert compiled("keys", digest)["blocked"] is False


@pytest.mark.usefixtures("acme")
def test_an_expiry_is_kept_to_the_millisecond(operator):
    expires = datetime.now(UTC).replace(microsecond=123_456) + timedelta(days=1)
    key = operator.post("/tenants/acme/keys", {"expires_at": expires.isoformat()}).json()["item"]
    assert datetime.fromisoformat(key["expires_at"]) == expires.replace(microsecond=123_000)
    content = compiled("keys", TenantKey.objects.get().key_hash)
    assert content["expires_at_ms"] == int(expires.timestamp()) * 1000 + 123
    assert operator.patch(f"/keys/{key['id']}", {"expires_at": None}).json()["item"]["expires_at"] is None


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize(
    "expires", ["2020-01-01T00:00:00Z", "2999-01-01T00:00:00", "9999-12-31T23:59:59-10:00", "soon", True]
)
def test_an_expiry_that_is_past_naive_or_no_time_is_refused(operator, expires):
    answer = operator.post("/tenants/acme/keys", {"expires_at": expires})
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["path"] == "/expires_at"
    assert not TenantKey.objects.exists()


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize("label", ["x" * 101, "a\x00b"])
def test_a_label_that_cannot_be_shown_is_refused(operator, label):
    answer = operator.post("/tenants/acme/keys", {"label": label})
    assert answer.json()["problems"][0]["path"] == "/label"


@pytest.mark.usefixtures("acme")
def test_keys_of_a_tenant_come_in_pages(operator):
    operator.post("/tenants", {"name": "other"})
    operator.post("/tenants/other/keys", {})
    made = [operator.post("/tenants/acme/keys", {}).json()["item"]["id"] for _ in range(3)]
    first = operator.get("/tenants/acme/keys?limit=2").json()
    rest = operator.get(f"/tenants/acme/keys?limit=2&after={first['next']}").json()
    assert [item["id"] for item in first["items"] + rest["items"]] == made
    assert rest["next"] is None


@pytest.mark.usefixtures("acme")
def test_deleting_a_tenant_takes_its_keys_with_it(operator):
    operator.post("/tenants/acme/keys", {})
    digest = TenantKey.objects.get().key_hash
    patch = operator.delete("/tenants/acme").json()["patch"]
    assert patch == {"keys": {digest: None}, "tenants": {"acme": None}}
    assert not TenantKey.objects.exists()
    assert AuditEntry.objects.filter(noun="key", action="delete").count() == 1


@pytest.mark.usefixtures("acme")
def test_a_deleted_key_is_gone(operator):
    key = operator.post("/tenants/acme/keys", {}).json()["item"]["id"]
    assert operator.delete(f"/keys/{key}").status_code == 200
    assert operator.get(f"/keys/{key}").status_code == 404
    assert sections["keys"].keys() == []


def test_a_key_of_an_unknown_tenant_is_not_made(operator):
    assert operator.post("/tenants/nobody/keys", {}).status_code == 404
    assert operator.get("/tenants/nobody/keys").status_code == 404
    assert operator.get(f"/keys/{2**70}").status_code == 422


def test_a_rollback_has_no_way_to_revive_a_key():
    assert sections["keys"].restore is None
