"""People who are limited to some tenants, and tokens that may make some calls."""

from __future__ import annotations

import re

import pytest
from asgiref.sync import async_to_sync

from controlplane.api.api import api
from controlplane.core import changes
from controlplane.core.models import ApiToken, AuditEntry, Role
from controlplane.core.scope import both, told_of_warnings
from controlplane.telemetry.decisions import log, sketches
from tests.controlplane.core.people import person, token_of
from wire.messages import Decision
from wire.problems import Problem
from wire.sketches import Sketch

# (method, path) of all that is open to people of some tenants.
OPEN = {
    ("get", "/api/v1/me"),
    ("post", "/api/v1/me/end-log-ins"),
    ("get", "/api/v1/me/log-ins"),
    ("post", "/api/v1/me/password"),
    ("get", "/api/v1/api-tokens"),
    ("post", "/api/v1/api-tokens"),
    ("delete", "/api/v1/api-tokens/{token_id}"),
    ("get", "/api/v1/audit"),
    ("get", "/api/v1/audit/export"),
    ("get", "/api/v1/tenants"),
    ("get", "/api/v1/tenants/{name}"),
    ("patch", "/api/v1/tenants/{name}"),
    ("get", "/api/v1/tenants/{name}/keys"),
    ("post", "/api/v1/tenants/{name}/keys"),
    ("get", "/api/v1/keys/{key_id}"),
    ("patch", "/api/v1/keys/{key_id}"),
    ("delete", "/api/v1/keys/{key_id}"),
    ("post", "/api/v1/keys/{key_id}/rotate"),
    ("get", "/api/v1/decisions"),
    ("get", "/api/v1/decisions/{request_id}"),
    ("get", "/api/v1/sketches"),
    ("post", "/api/v1/shadow"),
    ("get", "/api/v1/batches"),
    ("get", "/api/v1/batches/{batch_id}"),
    ("post", "/api/v1/batches/{batch_id}/cancel"),
}
# Beside these, what asks nobody who they are, and the targets' stream, which is answered beside Django.
FOR_ALL = {"/api/v1/schema", "/api/v1/schema/{name}", "/api/v1/targets/enrol", "/api/v1/config/stream"}


def calls():
    """(method, path, tags) of every call that asks who is there."""
    for path, methods in api.get_openapi_schema()["paths"].items():
        for method, operation in methods.items():
            if path not in FOR_ALL:
                yield method, path, operation.get("tags")


def call(rest, method, path):
    return rest.call(method.upper(), re.sub(r"{[a-z0-9_]+}", "999999", path.removeprefix("/api/v1")), {})


@pytest.fixture
def fleet(admin):
    """Two tenants, each with a key and a decision."""
    keys = {}
    for name in ("acme", "beta"):
        assert admin.post("/tenants", {"name": name, "tpm_limit": 60_000}).status_code == 201
        keys[name] = admin.post(f"/tenants/{name}/keys", {}).json()["item"]["id"]
    told = [
        Decision(
            request_id=f"of-{name}", at=1_000, revision=1, stage="quota", reason="tpm", status=429, tenant=name,
            priority_class="-", pool="-",
        )
        for name in ("acme", "beta")
    ]  # fmt: skip
    log.take("edge-1", told, now_ms=2_000)
    counted = [
        Sketch(minute=60_000, tenant=name, priority_class="-", pool="-", arrivals=3) for name in ("acme", "beta")
    ]
    sketches.take("edge-1", counted, now_ms=2_000)
    return keys


@pytest.fixture
def ops(db):
    """An operator of acme alone."""
    return token_of(person(Role.OPERATOR, ["acme"]))


@pytest.mark.django_db
def test_nothing_answers_to_people_of_some_tenants_but_what_says_so():
    # Their role is no way around: even this one reaches no more.
    rest = token_of(person(Role.ADMIN, ["acme"]))
    targets_only = set()
    for method, path, _tags in calls():
        answer = call(rest, method, path)
        code = answer.json().get("code") if answer.status_code >= 400 else None
        if answer.status_code == 401:
            targets_only.add(path)
        elif (method, path) in OPEN:
            assert code != "tenant_scope", (method, path)
        else:
            assert (answer.status_code, code) == (403, "tenant_scope"), (method, path)
    work = {path for path in targets_only if path.startswith("/api/v1/batch-work/")}
    assert targets_only - work <= {
        "/api/v1/config/ack", "/api/v1/config/snapshot", "/api/v1/decisions", "/api/v1/events",
        "/api/v1/nodes/report", "/api/v1/sketches", "/api/v1/targets/rotate",
    }  # fmt: skip


@pytest.mark.django_db
def test_every_call_is_closed_to_a_token_without_its_scope_and_says_which_it_needs():
    rest = token_of(person(Role.ADMIN), scopes=["metrics"])
    for method, path, tags in calls():
        answer = call(rest, method, path)
        if tags == ["targets"] and answer.status_code == 401:
            continue
        assert (answer.status_code, answer.json()["code"]) == (403, "token_scope"), (method, path)
        assert all(repr(tag) in answer.json()["detail"] for tag in tags)


@pytest.mark.parametrize("path", ["/prometheus/api/v1/query?query=1", "/prometheus/federate"])
def test_metrics_are_closed_to_people_of_some_tenants_and_to_tokens_of_other_scopes(db, path):
    def status(rest):
        return rest.client.get(path).status_code

    assert status(token_of(person(Role.VIEWER), scopes=["metrics"])) == 200
    assert status(token_of(person(Role.VIEWER))) == 200
    assert status(token_of(person(Role.VIEWER), scopes=["tenants"])) == 403
    assert status(token_of(person(Role.VIEWER, ["acme"]))) == 403


def collected(answer):
    async def collect():
        return [part async for part in answer.streaming_content]

    return async_to_sync(collect)()


def test_lists_hold_what_is_theirs_alone(fleet, ops):
    assert [item["name"] for item in ops.get("/tenants").json()["items"]] == ["acme"]
    assert [item["tenant"] for item in ops.get("/decisions").json()["items"]] == ["acme"]
    assert ops.get("/decisions?tenant=beta").json()["items"] == []
    span = "since=1970-01-01T00:00:00Z&until=1970-01-02T00:00:00Z"
    assert [item["tenant"] for item in ops.get(f"/sketches?{span}").json()["items"]] == ["acme"]
    # Summed up over tenants too.
    assert [item["arrivals"] for item in ops.get(f"/sketches?{span}&by=pool").json()["items"]] == [3]


def test_the_audit_holds_their_tenants_and_keys_also_those_that_are_gone(fleet, ops, admin):
    admin.delete(f"/keys/{fleet['acme']}")
    admin.delete(f"/keys/{fleet['beta']}")
    admin.post("/tenants", {"name": "acme-2"})
    found = {(item["noun"], item["key"], item["action"]) for item in ops.get("/audit").json()["items"]}
    key = str(fleet["acme"])
    assert found == {("tenant", "acme", "create"), ("key", key, "create"), ("key", key, "delete")}
    exported = b"".join(collected(ops.get("/audit/export"))).decode()
    assert "acme" in exported
    assert "beta" not in exported
    assert "acme-2" not in exported


def test_what_is_of_another_tenant_is_as_unknown_as_what_does_not_exist(fleet, ops):
    foreign, unknown = fleet["beta"], 999_999
    for method, theirs, nobodys in (
        ("GET", "/tenants/beta", "/tenants/nobody"),
        ("PATCH", "/tenants/beta", "/tenants/nobody"),
        ("GET", "/tenants/beta/keys", "/tenants/nobody/keys"),
        ("POST", "/tenants/beta/keys", "/tenants/nobody/keys"),
        ("GET", f"/keys/{foreign}", f"/keys/{unknown}"),
        ("PATCH", f"/keys/{foreign}", f"/keys/{unknown}"),
        ("DELETE", f"/keys/{foreign}", f"/keys/{unknown}"),
        ("GET", "/decisions/of-beta", "/decisions/of-nobody"),
    ):
        answers = [ops.call(method, path, {} if method != "GET" else None) for path in (theirs, nobodys)]
        assert [answer.status_code for answer in answers] == [404, 404], (method, theirs)
        names = ("beta", "nobody", str(foreign), str(unknown))
        shown = [re.sub("|".join(names), "…", answer.json()["detail"]) for answer in answers]
        assert shown[0] == shown[1]


def test_their_operators_make_block_and_delete_keys(fleet, ops):
    made = ops.post("/tenants/acme/keys", {"label": "new"})
    assert made.status_code == 201
    number = made.json()["item"]["id"]
    assert ops.patch(f"/keys/{number}", {"blocked": True}).status_code == 200
    assert ops.delete(f"/keys/{number}").status_code == 200


def test_a_write_tells_them_how_far_it_is_and_names_no_target(fleet, ops, admin, monkeypatch):
    counts = {"revision": 7, "targets": 2, "applied": 1, "waited_ms": 3}
    whole = {**counts, "pending": ["gateway/edge-1"], "refused": [], "lost": []}
    monkeypatch.setattr(changes, "waiter", [lambda change_id, timeout_seconds: whole])
    path = "/tenants/acme?wait=applied"
    assert ops.patch(path, {"tpm_limit": 5}).json()["convergence"] == counts
    assert admin.patch(path, {"tpm_limit": 6}).json()["convergence"] == whole


def test_warnings_of_a_write_are_told_to_those_whose_they_are():
    warnings = [
        Problem(path, "x", "") for path in ("/tenants/acme", "/tenants/acme/models", "/tenants/acme-2", "/pools/a")
    ]
    assert told_of_warnings(None, warnings) == warnings
    assert told_of_warnings(frozenset({"acme"}), warnings) == warnings[:2]


def test_their_viewers_change_nothing(fleet):
    viewer = token_of(person(Role.VIEWER, ["acme"]))
    assert viewer.get("/tenants/acme").status_code == 200
    assert viewer.patch("/tenants/acme", {"tpm_limit": 1}).json()["code"] == "forbidden"
    assert viewer.post("/tenants/acme/keys", {}).status_code == 403


@pytest.mark.parametrize("lowered", [{"tpm_limit": 59_999}, {"tpm_limit": 0}, {"rpm_limit": 10, "n_cap": 1}])
def test_their_operators_lower_limits(fleet, ops, lowered):
    assert ops.patch("/tenants/acme", lowered).status_code == 200
    assert lowered.items() <= ops.get("/tenants/acme").json().items()


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"tpm_limit": 60_001}, "/tpm_limit"),
        ({"tpm_limit": None}, "/tpm_limit"),
        ({"weight": 2}, "/weight"),
        ({"models": ["llama"]}, "/models"),
        ({"blocked": True}, "/blocked"),
        ({"rpm_limit": 5, "weight": 1_000}, "/weight"),
    ],
)
def test_they_raise_nothing(fleet, ops, admin, more, path):
    before, entries = admin.get("/tenants/acme").json(), AuditEntry.objects.count()
    for dry_run in ("", "?dry_run=true"):
        refused = ops.patch(f"/tenants/acme{dry_run}", more)
        assert (refused.status_code, refused.json()["code"]) == (403, "scope_raise")
        assert [(one["path"], one["rule"]) for one in refused.json()["problems"]] == [(path, "scope_raise")]
    assert (admin.get("/tenants/acme").json(), AuditEntry.objects.count()) == (before, entries)
    if path != "/models":
        assert admin.patch("/tenants/acme", more).status_code == 200


def test_their_own_api_tokens_are_theirs_and_no_wider(fleet, ops, admin):
    wide = ops.post("/api-tokens", {"name": "wide", "tenants": ["acme", "beta"]})
    assert [problem["path"] for problem in wide.json()["problems"]] == ["/tenants/beta"]
    made = ops.post("/api-tokens", {"name": "narrow", "role": "operator"})
    assert made.json()["item"]["tenants"] == ["acme"]
    assert ops.get("/api-tokens?everyone=true").status_code == 403
    of_admin = ApiToken.objects.exclude(user__tenants__isnull=False).first()
    assert of_admin is not None
    assert ops.delete(f"/api-tokens/{of_admin.pk}").status_code == 404


def test_a_token_of_some_tenants_of_an_admin_ends_no_other_tokens(fleet, admin):
    boss = person(Role.ADMIN)
    narrow = token_of(boss, tenants=["acme"])
    of_admin = ApiToken.objects.exclude(user=boss).first()
    assert of_admin is not None
    assert narrow.delete(f"/api-tokens/{of_admin.pk}").status_code == 404
    assert narrow.get("/api-tokens?everyone=true").status_code == 403


def test_a_narrower_user_narrows_the_tokens_that_exist(fleet, admin):
    user = person(Role.OPERATOR)
    wide, of_beta = token_of(user), token_of(user, tenants=["beta"])
    assert wide.get("/nodes").status_code == 200
    admin.patch(f"/users/{user.username}", {"tenants": ["acme"]})
    assert wide.get("/nodes").json()["code"] == "tenant_scope"
    assert [item["name"] for item in wide.get("/tenants").json()["items"]] == ["acme"]
    assert of_beta.get("/tenants").json()["items"] == []
    assert of_beta.get("/me").json()["acting_tenants"] == []


def test_a_token_calls_what_its_scopes_name(fleet):
    rest = token_of(person(Role.OPERATOR), scopes=["keys", "users"])
    assert rest.get("/me").json()["acting_scopes"] == ["keys", "users"]
    assert rest.get("/tenants/acme/keys").status_code == 200
    refused = rest.get("/tenants")
    assert (refused.status_code, refused.json()["code"]) == (403, "token_scope")
    assert "'tenants'" in refused.json()["detail"]


def test_a_token_makes_none_of_more_scopes_or_tenants_than_its_own(admin):
    maker = token_of(person(Role.ADMIN), scopes=["API tokens", "keys"], tenants=["acme"])
    like_it = maker.post("/api-tokens", {"name": "one"}).json()["item"]
    assert (like_it["scopes"], like_it["tenants"]) == (["API tokens", "keys"], ["acme"])
    more = maker.post("/api-tokens", {"name": "two", "scopes": ["keys", "users"], "tenants": ["beta"]})
    assert more.status_code == 422
    narrower = maker.post("/api-tokens", {"name": "three", "scopes": ["keys"]}).json()["item"]
    assert narrower["scopes"] == ["keys"]
    assert {item["name"]: item["scopes"] for item in maker.get("/api-tokens").json()["items"]}["three"] == ["keys"]


@pytest.mark.parametrize("scopes", [["everything"], [], "keys", ["keys", 1], ["\0"]])
def test_scopes_that_do_not_exist_are_refused_by_field(admin, scopes):
    refused = admin.post("/api-tokens", {"name": "one", "scopes": scopes})
    assert refused.status_code == 422
    assert all(problem["path"].startswith("/scopes") for problem in refused.json()["problems"])


@pytest.mark.parametrize("tenants", [[], ["A b"], "acme", [None]])
def test_tenants_of_a_user_are_names_of_tenants(admin, tenants):
    refused = admin.post("/users", {"username": "ada", "password": "correct horse battery", "tenants": tenants})
    assert refused.status_code == 422
    assert all(problem["path"].startswith("/tenants") for problem in refused.json()["problems"])


def test_a_tenant_that_does_not_exist_yet_is_a_warning(fleet, admin):
    new = {"username": "ada", "password": "correct horse battery", "tenants": ["acme", "gamma"]}
    made = admin.post("/users", new).json()
    assert made["item"]["tenants"] == ["acme", "gamma"]
    assert [warning["path"] for warning in made["warnings"]] == ["/tenants/gamma"]


def test_an_admin_is_of_the_whole_fleet(admin):
    new = {"username": "ada", "password": "correct horse battery", "role": "admin", "tenants": ["acme"]}
    assert [problem["path"] for problem in admin.post("/users", new).json()["problems"]] == ["/tenants"]


def test_two_bounds_leave_what_both_allow():
    assert both(None, None) is None
    assert both(None, frozenset("ab")) == both(frozenset("ab"), None) == frozenset("ab")
    assert both(frozenset("ab"), frozenset("bc")) == frozenset("b")


@pytest.mark.django_db
@pytest.mark.parametrize("field", ["session_limits", "cache_policy", "default_priority_class", "priority_classes"])
def test_no_refusal_tells_which_names_there_are(admin, fleet, ops, field):
    for path in ("/session-limits", "/cache-policies", "/priority-classes"):
        body = {"name": "of-beta", "rank": 1} if path == "/priority-classes" else {"name": "of-beta"}
        assert admin.post(path, body).status_code == 201
    asked = [["of-beta"], ["none"]] if field == "priority_classes" else ["of-beta", "none"]
    known, unknown = (ops.patch("/tenants/acme", {field: name}) for name in asked)
    assert known.status_code == 403
    assert known.content == unknown.content
    same = ops.get("/tenants/acme").json()[field]
    assert ops.patch("/tenants/acme", {field: same, "tpm_limit": 50_000}).status_code == 200
