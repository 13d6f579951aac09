from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.utils import timezone

from controlplane.celery import app
from controlplane.core import changes, tasks
from controlplane.core.idempotency import KEY_MAX_CHARACTERS
from controlplane.core.models import AuditEntry, IdempotentAnswer, Role
from tests.controlplane.core.racing import at_once

KEY = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
ACME = {"name": "acme", "weight": 3}


def keyed(key: str = "k-1", **more: str) -> dict[str, str]:
    return {KEY: key, **more}


def test_the_same_request_is_done_once_and_answered_the_same(operator):
    first = operator.post("/tenants", ACME, **keyed())
    again = operator.post("/tenants", ACME, **keyed())
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.content == first.content
    assert (REPLAYED in first, again[REPLAYED]) == (False, "true")
    assert again["ETag"] == first["ETag"]
    assert AuditEntry.objects.count() == 1


def test_without_a_key_a_request_that_comes_again_is_a_new_one(operator):
    operator.post("/tenants", ACME)
    assert operator.post("/tenants", ACME).status_code == 409
    assert not IdempotentAnswer.objects.exists()


def test_an_answer_stays_though_the_row_has_changed_or_gone(operator):
    first = operator.post("/tenants", ACME, **keyed())
    operator.patch("/tenants/acme", {"weight": 9})
    operator.delete("/tenants/acme")
    assert operator.post("/tenants", ACME, **keyed()).content == first.content


def test_an_edit_with_if_match_that_is_done_is_not_stale_when_it_comes_again(operator):
    tag = operator.post("/tenants", ACME)["ETag"]
    first, again = (operator.patch("/tenants/acme", {"weight": 4}, **keyed(), **{"If-Match": tag}) for _ in range(2))
    assert (first.status_code, again.status_code, again[REPLAYED]) == (200, 200, "true")


@pytest.mark.parametrize(
    ("method", "path", "body", "headers"),
    [
        ("POST", "/tenants", {"name": "globex"}, {}),
        ("POST", "/tenants?reason=another+reason", ACME, {}),
        ("POST", "/priority-classes", ACME, {}),
        ("PATCH", "/tenants/acme", ACME, {}),
        ("POST", "/tenants", ACME, {"If-None-Match": "*"}),
    ],
)
def test_a_key_names_one_request(operator, method, path, body, headers):
    operator.post("/tenants", ACME, **keyed())
    answer = operator.call(method, path, body, **keyed(), **headers)
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")
    (problem,) = answer.json()["problems"]
    assert (problem["path"], problem["rule"]) == ("/Idempotency-Key", "reused")
    assert "POST /api/v1/tenants" in problem["message"]
    assert "reason" not in problem["message"].partition("take a new key")[0]
    assert AuditEntry.objects.count() == 1


def test_keys_of_two_callers_are_two(operator, admin):
    operator.post("/tenants", ACME, **keyed())
    answer = admin.post("/tenants", ACME, **keyed())
    assert (answer.status_code, REPLAYED in answer) == (409, False)


def test_a_dry_run_keeps_nothing_and_repeats_nothing(operator):
    dry = operator.post("/tenants?dry_run=true", ACME, **keyed())
    assert dry.json()["dry_run"] is True
    assert not IdempotentAnswer.objects.exists()
    assert REPLAYED not in operator.post("/tenants", ACME, **keyed())
    dry = operator.patch("/tenants/acme?dry_run=true", {"weight": 4}, **keyed())
    assert (dry.status_code, REPLAYED in dry) == (200, False)


def test_a_write_that_was_refused_may_be_tried_again(operator):
    refused = operator.patch("/tenants/acme", {"weight": 4}, **keyed())
    assert refused.status_code == 404
    operator.post("/tenants", ACME)
    assert operator.patch("/tenants/acme", {"weight": 4}, **keyed()).json()["item"]["weight"] == 4


def test_a_lost_role_ends_its_answers_too(rest_of, admin):
    operator = rest_of(Role.OPERATOR)
    operator.post("/tenants", ACME, **keyed())
    name = operator.get("/me").json()["username"]
    assert admin.patch(f"/users/{name}", {"role": "viewer"}).status_code == 200
    assert operator.post("/tenants", ACME, **keyed()).status_code == 403


def test_a_secret_is_shown_again_to_the_same_caller_and_is_stored_sealed(rest_of):
    admin, other = rest_of(Role.ADMIN), rest_of(Role.ADMIN)
    admin.post("/tenants", ACME)
    first = admin.post("/tenants/acme/keys", {"label": "app"}, **keyed()).json()
    again = admin.post("/tenants/acme/keys", {"label": "app"}, **keyed()).json()
    assert again["secret"] == first["secret"]
    assert len(admin.get("/tenants/acme/keys").json()["items"]) == 1
    row = IdempotentAnswer.objects.get()
    assert row.is_sealed
    assert first["secret"] not in str(list(IdempotentAnswer.objects.values()))
    assert other.post("/tenants/acme/keys", {"label": "app"}, **keyed()).json()["secret"] != first["secret"]


@pytest.mark.parametrize("key", ["", " ", "a b", "naïve", "a\x7f", "x" * (KEY_MAX_CHARACTERS + 1)])
def test_a_key_that_is_none_is_refused_by_name(operator, key):
    answer = operator.post("/tenants", ACME, **keyed(key))
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")
    assert [(problem["path"], problem["rule"]) for problem in answer.json()["problems"]] == [
        ("/Idempotency-Key", "pattern")
    ]
    assert not AuditEntry.objects.exists()


def test_the_longest_key_is_taken(operator):
    assert operator.post("/tenants", ACME, **keyed("~" * KEY_MAX_CHARACTERS)).status_code == 201


@pytest.mark.django_db(transaction=True)
def test_of_two_at_once_the_second_waits_for_the_answer_of_the_first(operator):
    answers = []

    def write() -> None:
        answers.append(operator.post("/tenants", ACME, **keyed()))

    assert at_once(write, write) == [None, None]
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == 1
    assert sorted(REPLAYED in answer for answer in answers) == [False, True]


def test_an_answer_is_forgotten_in_its_time(operator):
    operator.post("/tenants", ACME, **keyed())
    IdempotentAnswer.objects.update(at=timezone.now() - timedelta(hours=24, seconds=1))
    # Also where nobody has removed it yet.
    assert operator.post("/tenants", ACME, **keyed()).status_code == 409
    assert IdempotentAnswer.objects.count() == 1, "a refused write keeps nothing and takes nothing back"
    assert tasks.forget_answers() == 1
    assert not IdempotentAnswer.objects.exists()


def test_the_beat_forgets_answers_by_itself():
    assert app.conf.beat_schedule["forget-answers"]["task"] == tasks.forget_answers.name


def kept(caller: str, count: int, size_bytes: int = 10) -> None:
    now = timezone.now()
    IdempotentAnswer.objects.bulk_create(
        IdempotentAnswer(
            caller=caller, key=f"k-{number}", call="", request_sha256="", answer="", is_sealed=False,
            size_bytes=size_bytes, at=now,
        )
        for number in range(count)
    )  # fmt: skip


def keys_of(caller: str) -> list[str]:
    return list(IdempotentAnswer.objects.filter(caller=caller).order_by("pk").values_list("key", flat=True))


def test_of_one_caller_only_the_newest_are_kept(db, monkeypatch):
    monkeypatch.setenv("HEADWORKS_IDEMPOTENCY_KEYS_MAX", "100")
    kept("user ada", 700)
    kept("user bob", 100)
    assert tasks.forget_answers() == 600
    assert keys_of("user ada") == [f"k-{number}" for number in range(600, 700)]
    assert len(keys_of("user bob")) == 100


def test_all_answers_together_have_a_bounded_space(db, monkeypatch):
    monkeypatch.setenv("HEADWORKS_IDEMPOTENCY_BYTES_MAX", str(1 << 20))
    kept("user ada", 3, size_bytes=1 << 18)
    kept("user bob", 3, size_bytes=1 << 18)
    assert tasks.forget_answers() == 2
    assert (keys_of("user ada"), keys_of("user bob")) == (["k-2"], ["k-0", "k-1", "k-2"])


def test_a_replay_waits_for_the_targets_as_the_first_call_would_have(operator, monkeypatch):
    waited: list[uuid.UUID] = []

    def waiter(change_id: uuid.UUID, timeout_seconds: float) -> dict[str, object]:
        waited.append(change_id)
        return {"applied": len(waited)}

    monkeypatch.setattr(changes, "waiter", [waiter])
    first, again = (operator.post("/tenants?wait=applied", ACME, **keyed()).json() for _ in range(2))
    assert (first["convergence"], again["convergence"]) == ({"applied": 1}, {"applied": 2})
    assert waited == [uuid.UUID(first["change_id"])] * 2
