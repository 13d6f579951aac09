from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from controlplane.core.changes import sections
from controlplane.core.models import AuditEntry
from controlplane.core.tokens import token_hash
from controlplane.tenants.models import TenantKey
from tests.controlplane.core.configuration import compiled


@pytest.fixture
def acme(admin):
    admin.post("/tenants", {"name": "acme"})


@pytest.mark.usefixtures("acme")
def test_a_key_is_shown_once_and_stored_as_a_hash(admin):
    made = admin.post("/tenants/acme/keys", {"label": "laptop"})
    assert made.status_code == 201
    secret = made.json()["secret"]
    assert secret.startswith("hw-")
    row = TenantKey.objects.get()
    assert row.key_hash == token_hash(secret)
    assert made.json()["item"]["prefix"] == secret[:8]
    assert compiled("keys", row.key_hash) == {"tenant": "acme", "prefix": secret[:8], "blocked": False}
    stored = str([(entry.before, entry.after) for entry in AuditEntry.objects.all()])
    for answer in (admin.get("/tenants/acme/keys"), admin.get(f"/keys/{row.pk}"), admin.get("/audit")):
        stored += answer.content.decode()
    assert secret not in stored
    assert row.key_hash not in stored


@pytest.mark.usefixtures("acme")
def test_a_dry_run_makes_no_key_and_shows_no_secret(admin):
    answer = admin.post("/tenants/acme/keys?dry_run=true", {}).json()
    assert answer["secret"] is None
    assert not TenantKey.objects.exists()


@pytest.mark.usefixtures("acme")
def test_a_key_is_blocked_and_unblocked(admin):
    key = admin.post("/tenants/acme/keys", {}).json()["item"]["id"]
    digest = TenantKey.objects.get().key_hash
    blocked = admin.patch(f"/keys/{key}", {"blocked": True}).json()
    assert blocked["patch"] == {"keys": {digest: {"blocked": True}}}
    assert admin.patch(f"/keys/{key}", {"blocked": False}).json()["item"]["blocked"] is False
    assert compiled("keys", digest)["blocked"] is False


@pytest.mark.usefixtures("acme")
def test_an_expiry_is_kept_to_the_millisecond(admin):
    expires = datetime.now(UTC).replace(microsecond=123_456) + timedelta(days=1)
    key = admin.post("/tenants/acme/keys", {"expires_at": expires.isoformat()}).json()["item"]
    assert datetime.fromisoformat(key["expires_at"]) == expires.replace(microsecond=123_000)
    content = compiled("keys", TenantKey.objects.get().key_hash)
    assert content["expires_at_ms"] == int(expires.timestamp()) * 1000 + 123
    assert admin.patch(f"/keys/{key['id']}", {"expires_at": None}).json()["item"]["expires_at"] is None


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize(
    "expires", ["2020-01-01T00:00:00Z", "2999-01-01T00:00:00", "9999-12-31T23:59:59-10:00", "soon", True]
)
def test_an_expiry_that_is_past_naive_or_no_time_is_refused(admin, expires):
    answer = admin.post("/tenants/acme/keys", {"expires_at": expires})
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["path"] == "/expires_at"
    assert not TenantKey.objects.exists()


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize("label", ["x" * 101, "a\x00b"])
def test_a_label_that_cannot_be_shown_is_refused(admin, label):
    answer = admin.post("/tenants/acme/keys", {"label": label})
    assert answer.json()["problems"][0]["path"] == "/label"


@pytest.mark.usefixtures("acme")
def test_keys_of_a_tenant_come_in_pages(admin):
    admin.post("/tenants", {"name": "other"})
    admin.post("/tenants/other/keys", {})
    made = [admin.post("/tenants/acme/keys", {}).json()["item"]["id"] for _ in range(3)]
    first = admin.get("/tenants/acme/keys?limit=2").json()
    rest = admin.get(f"/tenants/acme/keys?limit=2&after={first['next']}").json()
    assert [item["id"] for item in first["items"] + rest["items"]] == made
    assert rest["next"] is None


@pytest.mark.usefixtures("acme")
def test_deleting_a_tenant_takes_its_keys_with_it(admin):
    admin.post("/tenants/acme/keys", {})
    digest = TenantKey.objects.get().key_hash
    patch = admin.delete("/tenants/acme").json()["patch"]
    assert patch == {"keys": {digest: None}, "tenants": {"acme": None}}
    assert not TenantKey.objects.exists()
    assert AuditEntry.objects.filter(noun="key", action="delete").count() == 1


def rotate(admin, key, seconds=3600, query=""):
    return admin.post(f"/keys/{key}/rotate{query}", {"overlap_seconds": seconds})


@pytest.mark.usefixtures("acme")
def test_a_rotated_key_works_beside_its_successor_until_the_overlap_ends(admin):
    old = admin.post("/tenants/acme/keys", {"label": "laptop"}).json()["item"]["id"]
    before = datetime.now(UTC)
    made = rotate(admin, old)
    assert made.status_code == 201
    new = made.json()["item"]
    assert (new["tenant"], new["label"], new["expires_at"], new["replaced_by"]) == ("acme", "laptop", None, None)
    assert token_hash(made.json()["secret"]) == TenantKey.objects.get(pk=new["id"]).key_hash
    left = admin.get(f"/keys/{old}").json()
    assert left["replaced_by"] == new["id"]
    assert timedelta(minutes=59) < datetime.fromisoformat(left["expires_at"]) - before < timedelta(minutes=61)
    ends = compiled("keys", TenantKey.objects.get(pk=old).key_hash)["expires_at_ms"]
    assert ends == datetime.fromisoformat(left["expires_at"]).timestamp() * 1000
    assert [entry.action for entry in AuditEntry.objects.filter(noun="key").order_by("pk")] == [
        "create",
        "create",
        "update",
    ]
    assert rotate(admin, new["id"], 0).status_code == 201
    assert datetime.fromisoformat(admin.get(f"/keys/{new['id']}").json()["expires_at"]) <= datetime.now(UTC)


@pytest.mark.usefixtures("acme")
def test_a_rotation_never_lets_a_key_live_longer(admin):
    soon = (datetime.now(UTC) + timedelta(minutes=1)).isoformat(timespec="milliseconds")
    old = admin.post("/tenants/acme/keys", {"expires_at": soon}).json()["item"]
    rotate(admin, old["id"])
    assert admin.get(f"/keys/{old['id']}").json()["expires_at"] == old["expires_at"]


@pytest.mark.usefixtures("acme")
def test_a_key_that_nobody_can_use_or_that_was_rotated_is_not_rotated(admin):
    old = admin.post("/tenants/acme/keys", {}).json()["item"]["id"]
    assert rotate(admin, old, query="?dry_run=true").json()["secret"] is None
    assert TenantKey.objects.count() == 1
    new = rotate(admin, old).json()["item"]["id"]
    again = rotate(admin, old)
    assert (again.status_code, again.json()["code"]) == (409, "rotated")
    assert f"key {new}" in again.json()["detail"]
    admin.patch(f"/keys/{new}", {"blocked": True})
    assert rotate(admin, new).json()["code"] == "not_in_use"
    admin.patch(f"/keys/{new}", {"blocked": False})
    TenantKey.objects.filter(pk=new).update(expires_at=datetime.now(UTC))
    assert rotate(admin, new).json()["code"] == "not_in_use"
    assert TenantKey.objects.count() == 2


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize("seconds", [-1, 30 * 86_400 + 1, None, "60", 1.5])
def test_an_overlap_out_of_range_is_refused(admin, seconds):
    key = admin.post("/tenants/acme/keys", {}).json()["item"]["id"]
    assert [problem["path"] for problem in rotate(admin, key, seconds).json()["problems"]] == ["/overlap_seconds"]
    assert admin.post(f"/keys/{key}/rotate", {}).status_code == 422
    assert TenantKey.objects.count() == 1


@pytest.mark.usefixtures("acme")
def test_a_successor_that_is_deleted_leaves_the_old_key_to_be_rotated_again(admin):
    old = admin.post("/tenants/acme/keys", {}).json()["item"]["id"]
    admin.delete(f"/keys/{rotate(admin, old).json()['item']['id']}")
    assert admin.get(f"/keys/{old}").json()["replaced_by"] is None
    assert rotate(admin, old).status_code == 201


@pytest.mark.usefixtures("acme")
def test_a_deleted_key_is_gone(admin):
    key = admin.post("/tenants/acme/keys", {}).json()["item"]["id"]
    assert admin.delete(f"/keys/{key}").status_code == 200
    assert admin.get(f"/keys/{key}").status_code == 404
    assert sections["keys"].keys() == []


def test_a_key_of_an_unknown_tenant_is_not_made(admin):
    assert admin.post("/tenants/nobody/keys", {}).status_code == 404
    assert admin.get("/tenants/nobody/keys").status_code == 404
    assert admin.get(f"/keys/{2**70}").status_code == 422


def test_a_rollback_has_no_way_to_revive_a_key():
    assert sections["keys"].restore is None
