from __future__ import annotations

import pytest
from django.test import Client

from controlplane.core import users
from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.errors import Conflict
from controlplane.core.models import AuditEntry, Role, User

PASSWORD = "correct horse battery"
NEW = {"username": "ada", "role": "operator", "password": PASSWORD}


def paths_of(answer):
    assert answer.status_code == 422, answer.content
    return {problem["path"] for problem in answer.json()["problems"]}


def test_a_user_is_created_and_may_log_in(admin):
    made = admin.post("/users", NEW)
    assert made.status_code == 201
    assert made.json()["item"]["role"] == "operator"
    assert Client().login(username="ada", password=PASSWORD)
    assert admin.get("/users/ada").json() == admin.get("/users").json()["items"][0]


def test_no_answer_or_record_holds_a_password(admin):
    shown = admin.post("/users", NEW).content
    shown += admin.patch("/users/ada", {"password": "another long one"}).content
    shown += admin.get("/users/ada").content + admin.get("/audit").content
    assert PASSWORD not in shown.decode()
    assert "another long one" not in shown.decode()
    assert User.objects.get(username="ada").password not in shown.decode()


def test_a_new_password_is_audited_and_ends_log_ins(admin):
    admin.post("/users", NEW)
    browser = Client()
    browser.login(username="ada", password=PASSWORD)
    assert browser.get("/api/v1/me").status_code == 200
    assert admin.patch("/users/ada", {"password": "another long one"}).status_code == 200
    assert AuditEntry.objects.filter(after__password_changed=True).count() == 1
    assert browser.get("/api/v1/me").status_code == 401


def test_a_deactivated_user_can_do_nothing(admin, rest_of):
    script = rest_of(Role.OPERATOR)
    name = script.get("/me").json()["username"]
    assert admin.patch(f"/users/{name}", {"is_active": False}).status_code == 200
    assert script.get("/me").status_code == 401


def test_a_lesser_role_counts_at_once_for_tokens_made_before(admin, rest_of):
    script = rest_of(Role.OPERATOR)
    name = script.get("/me").json()["username"]
    admin.patch(f"/users/{name}", {"role": "viewer"})
    assert script.get("/me").json()["acting_role"] == "viewer"
    assert script.post("/tenants", {"name": "acme"}).status_code == 403


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"password": "short"}, "/password"),
        ({"password": "password1234"}, "/password"),
        ({"password": "x" * 201}, "/password"),
        ({"password": None}, "/password"),
        ({"role": "root"}, "/role"),
        ({"username": "a b"}, "/username"),
        ({"username": ""}, "/username"),
        ({"username": None}, "/username"),
        ({"is_superuser": True}, "/is_superuser"),
        ({"is_active": 1}, "/is_active"),
    ],
)
def test_a_bad_user_is_refused_by_field(admin, fields, path):
    before = User.objects.count()
    assert paths_of(admin.post("/users", {**NEW, **fields})) == {path}
    assert User.objects.count() == before


def test_a_user_needs_a_password(admin):
    assert paths_of(admin.post("/users", {"username": "ada"})) == {"/password"}


def test_a_taken_name_is_a_conflict(admin):
    admin.post("/users", NEW)
    assert admin.post("/users", NEW).status_code == 409


@pytest.mark.parametrize("change", [{"role": "operator"}, {"is_active": False}])
def test_the_last_active_admin_stays(admin, change):
    name = admin.get("/me").json()["username"]
    refused = admin.patch(f"/users/{name}", change)
    assert (refused.status_code, refused.json()["code"]) == (409, "last_admin")
    row = User.objects.get(username=name)
    assert (row.role, row.is_active) == (Role.ADMIN, True)

    admin.post("/users", {**NEW, "role": "admin", "is_active": False})
    assert admin.patch(f"/users/{name}", change).status_code == 409
    admin.patch("/users/ada", {"is_active": True})
    assert admin.patch(f"/users/{name}", change).status_code == 200


@pytest.mark.django_db
def test_the_shell_makes_the_first_admin_with_a_role_of_the_enumeration():
    with unit_of_work(SYSTEM, "first start") as unit:
        users.create(unit, "admin", {"role": Role.ADMIN, "password": PASSWORD})
    with pytest.raises(Conflict), unit_of_work(SYSTEM, "first start again") as unit:
        users.create(unit, "admin", {"role": Role.ADMIN, "password": PASSWORD})
    assert User.objects.get().role == Role.ADMIN


def test_users_come_in_pages_by_name(admin):
    for name in ("c", "b"):
        admin.post("/users", {**NEW, "username": name})
    first = admin.get("/users?limit=2").json()
    second = admin.get(f"/users?limit=2&after={first['next']}").json()
    assert [item["username"] for item in first["items"] + second["items"]] == ["admin-0", "b", "c"]


def test_an_unknown_user_is_not_found(admin):
    assert admin.get("/users/nobody").status_code == 404
    assert admin.patch("/users/nobody", {}).status_code == 404
    assert admin.get("/users/%00").status_code == 404
