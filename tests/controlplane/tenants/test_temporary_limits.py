"""Limits for a time: given, shown, taken back, forgotten, and left alone by a rollback."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from controlplane.configs import publisher, rollback
from controlplane.core.models import AuditEntry
from controlplane.tenants import tasks
from controlplane.tenants.models import TemporaryLimits
from tests.controlplane.core.configuration import compiled
from wire import snapshot
from wire.problems import type_problems

RAISE = {"tpm_limit": 120_000, "expires_in_seconds": 7200}
CALL = "/tenants/acme/temporary-limits"


@pytest.fixture
def acme(operator):
    operator.post("/tenants", {"name": "acme", "tpm_limit": 60_000, "rpm_limit": 10})


@pytest.mark.usefixtures("acme")
def test_a_raise_is_owned_by_its_caller_for_a_reason_until_it_expires(operator):
    before = timezone.now()
    made = operator.post(f"{CALL}?reason=launch+night", RAISE)
    assert made.status_code == 201
    given = made.json()["item"]["temporary"]
    entry = AuditEntry.objects.latest("pk")
    assert (entry.noun, entry.key, entry.reason) == ("tenant", "acme", "launch night")
    assert entry.after is not None
    assert entry.after["temporary"] == given
    assert (given["owner"], given["reason"], given["tpm_limit"]) == (entry.actor, "launch night", 120_000)
    expires = datetime.fromisoformat(given["expires_at"])
    assert timedelta(seconds=7199) < expires - before < timedelta(seconds=7230)
    content = compiled("tenants", "acme")
    assert type_problems(content, snapshot.Tenant) == []
    assert content["tpm_limit"] == 60_000
    assert content["temporary"] == {
        "owner": entry.actor,
        "reason": "launch night",
        "expires_at_ms": round(expires.timestamp() * 1000),
        "tpm_limit": 120_000,
    }
    now = operator.get("/tenants/acme").json()["limits_now"]
    assert (now["tpm_limit"], now["rpm_limit"], now["source"]) == (120_000, 10, "temporary")
    assert now["until"] == given["expires_at"]


@pytest.mark.usefixtures("acme")
def test_another_raise_takes_the_place_of_the_first_and_a_change_of_the_tenant_leaves_it(operator):
    operator.post(CALL, RAISE)
    given = operator.post(CALL, {"rpm_limit": 99, "expires_in_seconds": 60}).json()["item"]["temporary"]
    assert (given["tpm_limit"], given["rpm_limit"]) == (None, 99)
    assert operator.patch("/tenants/acme", {"weight": 3}).json()["item"]["temporary"] == given
    assert TemporaryLimits.objects.count() == 1
    refused = operator.patch("/tenants/acme", {"temporary": None})
    assert refused.json()["problems"][0]["path"] == "/temporary"


@pytest.mark.usefixtures("acme")
def test_a_raise_is_taken_back(operator):
    assert operator.delete(CALL).status_code == 404
    operator.post(CALL, RAISE)
    taken = operator.delete(CALL).json()
    assert taken["item"]["temporary"] is None
    assert taken["patch"] == {"tenants": {"acme": {"temporary": None}}}
    assert "temporary" not in compiled("tenants", "acme")
    assert operator.delete(CALL).status_code == 404


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"expires_in_seconds": 60}, "/"),
        ({"tpm_limit": None, "expires_in_seconds": 60}, "/"),
        ({"tpm_limit": 1}, "/expires_in_seconds"),
        ({"tpm_limit": 1, "expires_in_seconds": 0}, "/expires_in_seconds"),
        ({"tpm_limit": 1, "expires_in_seconds": 31 * 86_400 + 1}, "/expires_in_seconds"),
        ({"tpm_limit": -1, "expires_in_seconds": 60}, "/tpm_limit"),
        ({"weight": 2, "tpm_limit": 1, "expires_in_seconds": 60}, "/weight"),
        ({"owner": "someone else", "tpm_limit": 1, "expires_in_seconds": 60}, "/owner"),
    ],
)
def test_a_raise_out_of_range_is_refused_by_field(operator, body, path):
    answer = operator.post(CALL, body)
    assert answer.status_code == 422
    assert [problem["path"] for problem in answer.json()["problems"]] == [path]
    assert not TemporaryLimits.objects.exists()


@pytest.mark.usefixtures("acme")
def test_a_dry_run_gives_nothing_and_a_tenant_that_is_none_gets_nothing(operator):
    answer = operator.post(f"{CALL}?dry_run=true", RAISE).json()
    assert answer["item"]["temporary"]["tpm_limit"] == 120_000
    assert not TemporaryLimits.objects.exists()
    assert operator.post("/tenants/nobody/temporary-limits", RAISE).status_code == 404


@pytest.mark.usefixtures("acme")
def test_what_has_expired_holds_no_more_and_is_forgotten(operator):
    operator.post("/tenants", {"name": "globex"})
    operator.post("/tenants/globex/temporary-limits", RAISE)
    operator.post(CALL, RAISE)
    assert tasks.forget_expired_limits() == 0
    TemporaryLimits.objects.filter(tenant__name="acme").update(expires_at=timezone.now())
    now = operator.get("/tenants/acme").json()["limits_now"]
    assert (now["tpm_limit"], now["source"], now["until"]) == (60_000, "base", None)
    assert tasks.forget_expired_limits() == 1
    assert operator.get("/tenants/acme").json()["temporary"] is None
    assert operator.get("/tenants/globex").json()["temporary"] is not None
    assert "temporary" not in compiled("tenants", "acme")
    entry = AuditEntry.objects.latest("pk")
    assert (entry.actor_kind, entry.key, entry.reason) == ("system", "acme", "the temporary limits expired")


@pytest.mark.usefixtures("acme")
def test_a_rollback_neither_ends_a_raise_nor_brings_one_back(operator):
    operator.post("/tenants", {"name": "globex"})
    operator.post("/tenants/globex/temporary-limits", RAISE)
    before = publisher.publish()
    assert before is not None
    operator.delete("/tenants/globex/temporary-limits")
    operator.patch("/tenants/acme", {"tpm_limit": 1})
    given = operator.post(CALL, RAISE).json()["item"]["temporary"]
    publisher.publish()
    answer = operator.post(f"/revisions/{before.number}/rollback")
    assert answer.status_code == 200, answer.content
    acme = operator.get("/tenants/acme").json()
    assert (acme["tpm_limit"], acme["temporary"]) == (60_000, given)
    assert operator.get("/tenants/globex").json()["temporary"] is None


@pytest.mark.usefixtures("acme")
def test_a_rollback_past_the_making_and_deleting_of_a_tenant_brings_it_back_without_its_raise(operator):
    operator.post(CALL, RAISE)
    before = publisher.publish()
    assert before is not None
    operator.delete("/tenants/acme")
    publisher.publish()
    assert operator.post(f"/revisions/{before.number}/rollback").status_code == 200
    acme = operator.get("/tenants/acme").json()
    assert (acme["tpm_limit"], acme["temporary"]) == (60_000, None)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [({"temporary": None}, False), ({"temporary": {"tpm_limit": 1}, "weight": 2}, True), (None, True)],
)
def test_a_revision_of_state_alone_has_nothing_to_go_back_to(entry, expected):
    assert rollback.restores({"tenants": {"acme": entry}}) is expected
