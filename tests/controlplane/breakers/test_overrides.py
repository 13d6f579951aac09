from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from controlplane.breakers import tasks
from controlplane.breakers.models import Override
from controlplane.configs import publisher
from controlplane.core import expiry
from controlplane.core.models import AuditEntry
from tests.controlplane.core.configuration import compiled
from wire import snapshot
from wire.problems import type_problems

BODY = {"subject_kind": "pool", "subject": "short", "state": "open", "expires_in_seconds": 60}


@pytest.fixture
def pool(admin):
    admin.post("/models", {"name": "m", "max_context_tokens": 8192})
    assert admin.post("/pools", {"name": "short", "model": "m"}).status_code == 201


@pytest.mark.usefixtures("pool")
def test_a_breaker_is_forced_by_its_caller_for_a_reason_until_it_expires(operator):
    before = timezone.now()
    made = operator.post("/overrides?reason=it+burns", BODY)
    assert made.status_code == 201
    item = made.json()["item"]
    assert item["reason"] == "it burns"
    assert item["owner"] == AuditEntry.objects.latest("pk").actor
    expires = datetime.fromisoformat(item["expires_at"])
    assert timedelta(seconds=59) < expires - before < timedelta(seconds=90)
    content = compiled("overrides", item["name"])
    assert type_problems(content, snapshot.Override) == []
    assert content["expires_at_ms"] == round(expires.timestamp() * 1000)
    shown = {**item, "standing": "holds", "shadowed_by": None}
    assert operator.get(f"/overrides/{item['name']}").json() == shown
    assert operator.get("/overrides").json() == {"items": [shown], "next": None}


@pytest.mark.usefixtures("pool")
def test_a_lifted_override_is_gone_and_audited(operator):
    name = operator.post("/overrides", BODY).json()["item"]["name"]
    assert operator.delete(f"/overrides/{name}").json()["patch"] == {"overrides": {name: None}}
    assert not Override.objects.exists()
    assert AuditEntry.objects.filter(noun="override", key=name, action="delete").exists()
    assert operator.delete(f"/overrides/{name}").status_code == 404


@pytest.mark.usefixtures("pool")
@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"expires_in_seconds": 0}, "/expires_in_seconds"),
        ({"expires_in_seconds": 86_401}, "/expires_in_seconds"),
        ({"expires_in_seconds": None}, "/expires_in_seconds"),
        ({"state": "half_open"}, "/state"),
        ({"subject_kind": "node"}, "/subject_kind"),
        ({"subject": "Not A Name"}, "/subject"),
        ({"owner": "someone else"}, "/owner"),
    ],
)
def test_a_bad_override_is_refused_by_field(operator, fields, path):
    answer = operator.post("/overrides", {**BODY, **fields})
    assert {problem["path"] for problem in answer.json()["problems"]} == {path}
    assert not Override.objects.exists()


@pytest.mark.usefixtures("pool")
@pytest.mark.parametrize("subject_kind", ["pool", "engine"])
def test_a_subject_that_does_not_exist_is_refused(operator, subject_kind):
    answer = operator.post("/overrides", {**BODY, "subject_kind": subject_kind, "subject": "nobody"})
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["rule"] == "reference"
    assert not Override.objects.exists()


@pytest.mark.usefixtures("pool")
def test_a_rollback_neither_lifts_an_override_nor_revives_a_lifted_one(operator):
    lifted = operator.post("/overrides", BODY).json()["item"]["name"]
    operator.post("/tenants", {"name": "acme", "tpm_limit": 60_000})
    before = publisher.publish()
    assert before is not None
    operator.delete(f"/overrides/{lifted}")
    forced = operator.post("/overrides", {**BODY, "state": "closed"}).json()["item"]
    operator.patch("/tenants/acme", {"tpm_limit": 1})
    publisher.publish()
    assert operator.post(f"/revisions/{before.number}/rollback").status_code == 200
    assert [each["name"] for each in operator.get("/overrides").json()["items"]] == [forced["name"]]
    assert operator.get("/tenants/acme").json()["tpm_limit"] == 60_000


@pytest.mark.usefixtures("pool")
def test_what_has_expired_is_forgotten_and_stands_in_the_audit(operator):
    expired, lasting = (operator.post("/overrides", BODY).json()["item"]["name"] for _ in range(2))
    assert tasks.forget_expired_overrides() == 0
    Override.objects.filter(name=expired).update(expires_at=timezone.now() - timedelta(milliseconds=1))
    assert tasks.forget_expired_overrides() == 1
    assert [each["name"] for each in operator.get("/overrides").json()["items"]] == [lasting]
    assert AuditEntry.objects.get(noun="override", key=expired, action="delete").reason == "the override expired"


@pytest.mark.usefixtures("pool")
def test_many_that_expired_at_once_hold_up_other_writes_for_a_few_at_a_time(operator, monkeypatch):
    monkeypatch.setattr(expiry, "ROWS_A_WRITE", 2)
    for _ in range(5):
        operator.post("/overrides", BODY)
    Override.objects.update(expires_at=timezone.now())
    assert tasks.forget_expired_overrides() == 5
    assert not Override.objects.exists()
    ended = AuditEntry.objects.filter(noun="override", action="delete").values_list("change_id", flat=True)
    assert sorted(Counter(ended).values()) == [1, 2, 2]
