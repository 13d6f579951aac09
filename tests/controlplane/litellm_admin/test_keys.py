from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.core.models import AuditEntry
from controlplane.core.tokens import token_hash
from controlplane.litellm_admin import unheld
from controlplane.tenants.models import TenantKey
from tests.controlplane.litellm_admin.calls import Script, refusal

pytestmark = pytest.mark.django_db


@pytest.fixture
def script(admin):
    script = Script(admin)
    team = {"team_id": "acme", "tpm_limit": 1000, "rpm_limit": 60}
    assert script.post("/team/new", team).status_code == 200
    return script


def test_a_key_is_shown_once_and_is_the_tenants(script, admin):
    answer = script.post("/key/generate", {"team_id": "acme", "key_alias": "ranking", "duration": "30d"})
    assert answer.headers["Cache-Control"] == "no-store"
    made = answer.json()
    row = TenantKey.objects.get()
    assert token_hash(made["key"]) == row.key_hash
    assert made["key"].startswith("hw-")
    assert (made["team_id"], made["key_alias"], made["blocked"], made["token"]) == (
        "acme",
        "ranking",
        False,
        str(row.pk),
    )
    assert (made["tpm_limit"], made["rpm_limit"], made["max_parallel_requests"], made["models"]) == (1000, 60, None, [])
    ends = datetime.fromisoformat(made["expires"])
    assert abs(ends - timezone.now() - timedelta(days=30)) < timedelta(minutes=1)
    assert admin.get("/tenants/acme/keys").json()["items"][0]["label"] == "ranking"
    info = script.get(f"/key/info?key={made['key']}")
    assert made["key"] not in info.content.decode()
    assert info.json() == {"key": made["token"], "info": {k: v for k, v in made.items() if k != "key"}}


def test_a_key_is_known_by_itself_by_its_hash_and_by_its_token(script):
    made = script.post("/key/generate", {"team_id": "acme"}).json()
    assert made["expires"] is None
    for name in (made["key"], token_hash(made["key"]), made["token"]):
        assert script.get(f"/key/info?key={name}").json()["key"] == made["token"]
    for unknown in ("hw-other", "f" * 64, "999999", "9" * 40, "\ufffd"):
        error = refusal(script.get(f"/key/info?key={unknown}"), 404)
        assert unknown not in error["message"]
    assert refusal(script.get("/key/info"), 422)["param"] == "key"


def test_a_key_is_changed_blocked_unblocked_and_deleted(script):
    made = script.post("/key/generate", {"team_id": "acme", "duration": "1h"}).json()
    key = {"key": made["key"]}
    changed = script.post("/key/update", {**key, "key_alias": "new", "duration": "-1", "team_id": "acme"}).json()
    assert (changed["key"], changed["key_alias"], changed["expires"]) == (made["token"], "new", None)
    again = script.post("/key/update", {**key, "blocked": True}).json()
    assert (again["key_alias"], again["blocked"]) == ("new", True)
    assert script.post("/key/unblock", key).json()["blocked"] is False
    assert script.post("/key/block", key).json()["blocked"] is True
    assert script.post("/key/delete", {"keys": [made["key"]]}).json() == {"deleted_keys": [made["key"]]}
    assert not TenantKey.objects.exists()
    refusal(script.post("/key/block", key), 404)


def test_keys_go_all_or_none_and_an_alias_must_be_one_keys(script):
    first = script.post("/key/generate", {"team_id": "acme", "key_alias": "a"}).json()
    script.post("/key/generate", {"team_id": "acme", "key_alias": "b"})
    refusal(script.post("/key/delete", {"keys": [first["key"], "hw-unknown"]}), 404)
    refusal(script.post("/key/delete", {"key_aliases": ["a", "c"]}), 404)
    assert refusal(script.post("/key/delete", {"keys": []}), 422)["param"] == "keys"
    assert refusal(script.post("/key/delete"), 422)["param"] == "keys"
    assert TenantKey.objects.count() == 2
    script.post("/key/generate", {"team_id": "acme", "key_alias": "b"})
    assert "several" in refusal(script.post("/key/delete", {"key_aliases": ["b"]}), 409)["message"]
    both = {"keys": [first["key"], first["token"]], "key_aliases": ["a"]}
    assert script.post("/key/delete", both).status_code == 200
    assert TenantKey.objects.count() == 2


def test_a_key_may_say_its_teams_limits_again_and_no_others(script, admin):
    same: dict[str, Any] = {
        "tpm_limit": 1000, "rpm_limit": None, "max_parallel_requests": None, "models": [], "key_type": "llm_api",
    }  # fmt: skip
    assert script.post("/key/generate", {"team_id": "acme", **same}).status_code == 200
    assert script.post("/key/generate", {"team_id": "acme", "models": ["all-team-models"]}).status_code == 200
    token = script.post("/key/generate", {"team_id": "acme"}).json()["token"]
    for other in ({"tpm_limit": 10}, {"tpm_limit": 0}, {"max_parallel_requests": 1}, {"models": ["gpt"]}):
        (field,) = other
        for call in (("/key/generate", {"team_id": "acme"}), ("/key/update", {"key": token})):
            error = refusal(script.post(call[0], {**call[1], **other}), 422)
            assert error["param"] == field
            assert "/team/update" in error["message"]
    refusal(script.post("/key/generate", {"team_id": "acme", "key_type": "management"}), 422)
    assert TenantKey.objects.count() == 3


def test_a_key_stays_with_its_team(script):
    script.post("/team/new", {"team_id": "beta"})
    token = script.post("/key/generate", {"team_id": "acme"}).json()["token"]
    assert refusal(script.post("/key/update", {"key": token, "team_id": "beta"}), 422)["param"] == "team_id"
    assert refusal(script.post("/key/generate", {"key_alias": "x"}), 422)["param"] == "team_id"
    refusal(script.post("/key/generate", {"team_id": "gamma"}), 404)


@pytest.mark.parametrize(
    ("duration", "param"),
    [("1mo", "duration"), ("0s", "duration"), ("d", "duration"), (30, "duration"), ("999999999w", "duration")],
)
def test_a_duration_that_cannot_be_read_is_refused(script, duration, param):
    assert refusal(script.post("/key/generate", {"team_id": "acme", "duration": duration}), 422)["param"] == param


@pytest.mark.parametrize("unit_seconds", [("90s", 90), ("2m", 120), ("3h", 10_800), ("2w", 14 * 86_400)])
def test_durations_have_units(script, unit_seconds):
    duration, seconds = unit_seconds
    ends = script.post("/key/generate", {"team_id": "acme", "duration": duration}).json()["expires"]
    left = datetime.fromisoformat(ends) - datetime.now(UTC)
    assert timedelta(seconds=seconds - 60) < left <= timedelta(seconds=seconds)


@pytest.mark.parametrize("field", sorted(unheld.OF_NEW_KEYS))
def test_what_would_not_be_held_to_is_refused_by_name(script, field):
    error = refusal(script.post("/key/generate", {"team_id": "acme", field: 7}), 422)
    assert error["param"] == field
    assert "leave it out" in error["message"]
    assert not TenantKey.objects.exists()
    assert script.post("/key/generate", {"team_id": "acme", field: None}).status_code == 200


def test_a_budget_of_nothing_is_a_budget_and_nothing_spent_is_none(script):
    refusal(script.post("/key/generate", {"team_id": "acme", "max_budget": 0}), 422)
    empty = {"spend": 0, "metadata": {}, "aliases": {}, "config": {}, "auto_rotate": False, "max_budget": ""}
    assert script.post("/key/generate", {"team_id": "acme", **empty}).status_code == 200


def test_an_unknown_field_is_refused_empty_or_not(script):
    assert refusal(script.post("/key/generate", {"team_id": "acme", "ttl": None}), 422)["param"] == "ttl"


def test_the_audit_has_the_reason_and_on_whose_behalf(script, admin):
    script.post("/key/generate", {"team_id": "acme"})
    script.post("/key/generate", {"team_id": "acme"}, **{"litellm-changed-by": "build-robot"})
    script.post("/key/generate?reason=new+service", {"team_id": "acme"})
    reasons = list(AuditEntry.objects.filter(noun="key").order_by("pk").values_list("reason", flat=True))
    assert reasons == ["by a LiteLLM-shaped call", "by a LiteLLM-shaped call for build-robot", "new service"]
    refusal(script.post("/key/generate", {"team_id": "acme"}, **{"litellm-changed-by": "x" * 500}), 422)


def test_a_call_that_comes_again_makes_one_key(script):
    again = {"Idempotency-Key": "k-1"}
    first, second = (script.post("/key/generate", {"team_id": "acme"}, **again).json() for _ in range(2))
    assert first == second
    assert TenantKey.objects.count() == 1


@pytest.mark.parametrize("body", [b"{", b"[]", b'"a"', b'{"team_id": "a", "team_id": "b"}', b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_object_is_malformed(script, body):
    refusal(script.post("/key/generate", body), 400)


@pytest.mark.parametrize("text", ["\\u0000", "\\ud800", ""])
def test_odd_text_is_refused_and_never_an_error_of_ours(script, text):
    body = f'{{"key_aliases": ["{text}"], "keys": ["{text}"]}}'.encode()
    refusal(script.post("/key/delete", body), 422)
