from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from controlplane.core.models import ApiToken, AuditEntry, Role, User
from controlplane.core.tokens import token_hash
from tests.controlplane.conftest import REASON, Rest


def test_a_token_is_shown_once_and_works(viewer):
    made = viewer.post("/api-tokens", {"name": "grafana"}).json()
    secret = made["secret"]
    assert secret.startswith("hwt-")
    assert Rest(secret).get("/me").json()["acting_as"].endswith("/grafana")
    assert ApiToken.objects.get(name="grafana").token_hash == token_hash(secret)
    shown = viewer.get("/api-tokens").content + viewer.get("/audit").content
    assert secret not in shown.decode()
    assert token_hash(secret) not in shown.decode()


def test_a_dry_run_makes_no_token(viewer):
    answer = viewer.post("/api-tokens?dry_run=true", {"name": "grafana"}).json()
    assert answer["secret"] is None
    assert not ApiToken.objects.filter(name="grafana").exists()


def test_a_token_expires(viewer):
    ApiToken.objects.update(expires_at=timezone.now() + timedelta(days=9))
    item = viewer.post("/api-tokens", {"name": "grafana", "days": 2}).json()["item"]
    assert timedelta(days=1) < datetime.fromisoformat(item["expires_at"]) - timezone.now() <= timedelta(days=2)


def test_a_token_that_a_token_makes_ends_with_it_at_the_latest(viewer):
    made = viewer.post("/api-tokens", {"name": "grafana", "days": 365}).json()
    assert len(set(ApiToken.objects.values_list("expires_at", flat=True))) == 1
    assert [(each["path"], each["rule"]) for each in made["warnings"]] == [("/days", "ends_with_maker")]
    assert made["item"]["expires_at"] in made["warnings"][0]["message"]


def test_a_token_that_ends_some_hours_early_is_no_warning(viewer):
    ApiToken.objects.update(expires_at=timezone.now() + timedelta(days=90) - timedelta(hours=2))
    assert viewer.post("/api-tokens", {"name": "grafana", "days": 90}).json()["warnings"] == []


def test_a_token_that_is_made_in_a_browser_lives_as_long_as_was_asked(client, db):
    client.force_login(User.objects.create(username="ada", role=Role.VIEWER))
    path = f"/api/v1/api-tokens?{REASON}"
    item = client.post(path, {"name": "grafana", "days": 365}, content_type="application/json").json()["item"]
    assert datetime.fromisoformat(item["expires_at"]) - timezone.now() > timedelta(days=364)


def test_a_token_revokes_none_of_a_higher_role_even_of_the_same_person(admin):
    lesser = Rest(admin.post("/api-tokens", {"name": "lesser", "role": "viewer"}).json()["secret"])
    above = ApiToken.objects.get(name="test")
    refused = lesser.delete(f"/api-tokens/{above.pk}")
    assert (refused.status_code, refused.json()["code"]) == (403, "role")
    above.refresh_from_db()
    assert above.revoked_at is None
    equal = ApiToken.objects.get(name="lesser")
    assert lesser.delete(f"/api-tokens/{equal.pk}").status_code == 200


def test_a_person_in_a_browser_revokes_any_token_of_their_own(client, admin):
    token = ApiToken.objects.get()
    User.objects.update(role=Role.VIEWER)
    client.force_login(token.user)
    assert client.delete(f"/api/v1/api-tokens/{token.pk}?{REASON}").status_code == 200


@pytest.mark.parametrize(
    ("fields", "path"),
    [({"days": 0}, "/days"), ({"days": 366}, "/days"), ({"name": "A b"}, "/name"), ({"role": "root"}, "/role")],
)
def test_a_bad_token_is_refused_by_field(viewer, fields, path):
    answer = viewer.post("/api-tokens", {"name": "grafana", **fields})
    assert {problem["path"] for problem in answer.json()["problems"]} == {path}


def test_a_token_has_at_most_the_role_that_its_maker_acts_with(operator, admin):
    assert operator.post("/api-tokens", {"name": "t", "role": "admin"}).status_code == 403
    assert operator.post("/api-tokens", {"name": "t", "role": "operator"}).status_code == 201
    # An admin's script with a lesser token is no way up.
    lesser = Rest(admin.post("/api-tokens", {"name": "lesser", "role": "viewer"}).json()["secret"])
    assert lesser.post("/api-tokens", {"name": "more", "role": "admin"}).status_code == 403
    assert not ApiToken.objects.filter(name="more").exists()


def test_a_taken_name_is_a_conflict(viewer):
    viewer.post("/api-tokens", {"name": "grafana"})
    assert viewer.post("/api-tokens", {"name": "grafana"}).status_code == 409


def listed(rest, query=""):
    return rest.get(f"/api-tokens{query}").json()["items"]


def test_use_is_listed_and_is_no_part_of_what_the_audit_and_preconditions_go_by(viewer):
    made = viewer.post("/api-tokens", {"name": "grafana"}).json()
    assert Rest(made["secret"]).get("/me").status_code == 200
    (used,) = [item for item in listed(viewer) if item["name"] == "grafana"]
    assert used["last_used_at"]
    revoked = viewer.delete(f"/api-tokens/{used['id']}").json()["item"]
    assert "last_used_at" not in revoked
    assert "last_used_at" not in (AuditEntry.objects.latest("pk").after or {})


def test_a_revoked_token_stops_at_once_and_stays_listed(viewer):
    made = viewer.post("/api-tokens", {"name": "grafana"}).json()
    script = Rest(made["secret"])
    revoked = viewer.delete(f"/api-tokens/{made['item']['id']}").json()["item"]
    assert script.get("/me").status_code == 401
    again = viewer.delete(f"/api-tokens/{made['item']['id']}").json()["item"]
    assert again["revoked_at"] == revoked["revoked_at"]
    assert AuditEntry.objects.filter(noun="api token", action="update").count() == 1
    assert {**revoked, "last_used_at": None} in listed(viewer)


def test_tokens_of_others_are_for_admins_only(viewer, operator, admin):
    theirs = operator.post("/api-tokens", {"name": "theirs"}).json()["item"]
    assert theirs["id"] not in [item["id"] for item in listed(viewer)]
    assert viewer.get("/api-tokens?everyone=true").status_code == 403
    assert viewer.delete(f"/api-tokens/{theirs['id']}").status_code == 404
    assert {**theirs, "last_used_at": None} in listed(admin, "?everyone=true")
    assert admin.delete(f"/api-tokens/{theirs['id']}").status_code == 200


def test_tokens_come_in_pages(viewer):
    for name in ("b", "a"):
        viewer.post("/api-tokens", {"name": name})
    first = viewer.get("/api-tokens?limit=2").json()
    second = viewer.get(f"/api-tokens?limit=2&after={first['next']}").json()
    assert [item["name"] for item in first["items"] + second["items"]] == ["test", "b", "a"]
