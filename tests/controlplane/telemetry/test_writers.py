"""Metric writers over REST: made, read, changed, rotated, deleted, by whom."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from controlplane.configs.models import Revision
from controlplane.core.fields import iso
from controlplane.core.models import AuditEntry, Role
from controlplane.core.tokens import token_hash
from controlplane.telemetry.models import MetricWriter
from controlplane.telemetry.writers_api import router
from tests.controlplane.core.access import Call, check_access, routes_of

CALLS = [
    Call("GET", "/metric-writers", Role.VIEWER),
    Call("POST", "/metric-writers", Role.ADMIN),
    Call("GET", "/metric-writers/{name}", Role.VIEWER),
    Call("PATCH", "/metric-writers/{name}", Role.ADMIN),
    Call("DELETE", "/metric-writers/{name}", Role.ADMIN),
    Call("POST", "/metric-writers/{name}/rotate", Role.ADMIN),
]
CLUSTER_B = {"name": "b", "matchers": {"cluster": "b"}}
ONE = "/metric-writers/b"


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.method} {call.path}")
def test_a_route_takes_its_role_and_no_lesser(rest_of, call):
    check_access(rest_of, call)


def test_the_table_has_every_route():
    assert {call[:2] for call in CALLS} == routes_of(router)


def make(admin, **fields):
    answer = admin.post("/metric-writers", {**CLUSTER_B, **fields})
    assert answer.status_code == 201, answer.content
    return answer.json()


def in_days(days: float) -> str | None:
    return iso(timezone.now() + timedelta(days=days))


def test_its_token_is_shown_once_and_kept_as_a_hash(admin, viewer):
    made = make(admin)
    secret = made["secret"]
    assert secret.startswith("hww-")
    assert MetricWriter.objects.get().token_hash == token_hash(secret)
    for answer in (viewer.get("/metric-writers"), viewer.get(ONE), viewer.get("/audit")):
        assert answer.status_code == 200
        text = answer.content.decode()
        assert secret not in text
        assert token_hash(secret) not in text
    (row,) = viewer.get("/metric-writers").json()["items"]
    assert row == {**made["item"], "last_pushed_at": None} == viewer.get(ONE).json()
    assert row["matchers"] == {"cluster": "b"}
    assert (row["blocked"], row["expires_at"]) == (False, None)


def test_it_is_audited_and_changes_no_configuration(admin):
    revisions = Revision.objects.count()
    assert make(admin)["patch"] == {}
    admin.patch(ONE, {"blocked": True})
    admin.post(f"{ONE}/rotate", {"overlap_seconds": 0})
    admin.delete(ONE)
    entries = AuditEntry.objects.filter(noun="metric writer", key="b").order_by("pk")
    assert [entry.action for entry in entries] == ["create", "update", "update", "delete"]
    assert Revision.objects.count() == revisions


def test_a_dry_run_makes_none(admin):
    answer = admin.post("/metric-writers?dry_run=true&reason=a+try", CLUSTER_B)
    assert answer.status_code == 201
    assert answer.json()["secret"] is None
    assert not MetricWriter.objects.exists()


@pytest.mark.parametrize(
    ("fields", "path", "rule"),
    [
        ({"matchers": {}}, "/matchers", "too_short"),
        ({"matchers": {str(number): "x" for number in range(11)}}, "/matchers/0", "label"),
        ({"matchers": {f"l{number}": "x" for number in range(11)}}, "/matchers", "too_long"),
        ({"matchers": {"node": "n-9"}}, "/matchers/node", "reserved"),
        ({"matchers": {"gateway": "gw-9"}}, "/matchers/gateway", "reserved"),
        ({"matchers": {"__name__": "up"}}, "/matchers/__name__", "label"),
        ({"matchers": {"cluster": ""}}, "/matchers/cluster", "too_short"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "/expires_at", "range"),
        ({"name": "B"}, "/name", "pattern"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(admin, fields, path, rule):
    answer = admin.post("/metric-writers", {**CLUSTER_B, **fields})
    assert answer.status_code == 422
    assert (path, rule) in {(problem["path"], problem["rule"]) for problem in answer.json()["problems"]}
    assert not MetricWriter.objects.exists()


@pytest.mark.parametrize("matchers", [{"cluster": "b"}, {"replica": "1"}, {"cluster": "b", "replica": "1"}])
def test_no_series_can_be_two_writers(admin, matchers):
    make(admin)
    answer = admin.post("/metric-writers", {"name": "c", "matchers": matchers})
    assert [(problem["path"], problem["rule"]) for problem in answer.json()["problems"]] == [("/matchers", "overlap")]
    assert "that of b;" in answer.json()["detail"]


def test_writers_are_told_apart_by_one_label(admin):
    make(admin, matchers={"cluster": "b", "replica": "1"})
    for name, matchers in (("b-2", {"cluster": "b", "replica": "2"}), ("c", {"cluster": "c"})):
        assert admin.post("/metric-writers", {"name": name, "matchers": matchers}).status_code == 201
    assert admin.patch("/metric-writers/c", {"matchers": {"cluster": "b"}}).status_code == 422
    # Its own matchers do not stand in its way.
    assert admin.patch("/metric-writers/c", {"matchers": {"cluster": "c", "replica": "1"}}).status_code == 200


def test_an_expired_writer_is_still_changed(admin):
    make(admin, expires_at=in_days(1))
    MetricWriter.objects.update(expires_at=in_days(-1))
    assert admin.patch(ONE, {"matchers": {"cluster": "d"}}).status_code == 200
    assert admin.patch(ONE, {"expires_at": in_days(-1)}).status_code == 422
    assert admin.patch(ONE, {"expires_at": None}).json()["item"]["expires_at"] is None


def test_a_rotation_leaves_the_old_token_for_the_overlap(admin):
    old = make(admin, expires_at=in_days(9))["secret"]
    answer = admin.post(f"{ONE}/rotate", {"overlap_seconds": 3600})
    assert answer.status_code == 201
    row, new = MetricWriter.objects.get(), answer.json()["secret"]
    assert (row.token_hash, row.previous_token_hash) == (token_hash(new), token_hash(old))
    assert row.expires_at is None
    assert row.previous_expires_at is not None
    assert timedelta(minutes=59) < row.previous_expires_at - timezone.now() <= timedelta(hours=1)


def test_an_overlap_does_not_make_a_token_last_longer(admin):
    end = in_days(1)
    make(admin, expires_at=end)
    item = admin.post(f"{ONE}/rotate", {"overlap_seconds": 2 * 86_400, "expires_at": in_days(30)}).json()["item"]
    assert item["previous_expires_at"] == end
    assert item["expires_at"] > end


def test_of_two_tokens_none_is_ended_by_mistake(admin):
    make(admin)
    assert admin.post(f"{ONE}/rotate", {"overlap_seconds": 3600}).status_code == 201
    answer = admin.post(f"{ONE}/rotate", {"overlap_seconds": 3600})
    assert (answer.status_code, answer.json()["code"]) == (409, "rotated")
    assert admin.post(f"{ONE}/rotate", {"overlap_seconds": 0}).status_code == 201
    row = MetricWriter.objects.get()
    assert (row.previous_token_hash, row.previous_expires_at) == (None, None)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"overlap_seconds": -1},
        {"overlap_seconds": 30 * 86_400 + 1},
        {"overlap_seconds": 0, "expires_at": "2020-01-01T00:00:00Z"},
    ],
)
def test_a_rotation_that_does_not_fit_changes_nothing(admin, body):
    secret = make(admin)["secret"]
    assert admin.post(f"{ONE}/rotate", body).status_code == 422
    assert MetricWriter.objects.get().token_hash == token_hash(secret)
