from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.configs.models import Fragment
from controlplane.core.changes import SYSTEM, sections, unit_of_work
from controlplane.core.errors import Refused
from controlplane.core.models import AuditEntry
from controlplane.tenants import services
from controlplane.tenants.models import Tenant
from controlplane.tenants.services.tenants import TenantFields
from policy.limits import WEEKDAYS
from tests.controlplane.core.configuration import compiled
from wire import snapshot
from wire.problems import type_problems


def problems_of(answer):
    assert answer.status_code == 422, answer.content
    return {(problem["path"], problem["rule"]) for problem in answer.json()["problems"]}


def test_a_tenant_is_created_read_changed_and_deleted(operator):
    made = operator.post("/tenants", {"name": "acme", "tpm_limit": 60_000, "weight": 3})
    assert made.status_code == 201
    assert made.json()["patch"] == {"tenants": {"acme": {"weight": 3, "blocked": False, "tpm_limit": 60_000}}}

    read = operator.get("/tenants/acme").json()
    assert read["tpm_limit"] == 60_000
    assert read["rpm_limit"] is None
    assert datetime.fromisoformat(read["created_at"]).tzinfo == UTC

    changed = operator.patch("/tenants/acme", {"rpm_limit": 10, "tpm_limit": None})
    assert changed.json()["item"]["tpm_limit"] is None
    assert changed.json()["patch"] == {"tenants": {"acme": {"rpm_limit": 10, "tpm_limit": None}}}
    assert operator.get("/tenants/acme").json()["weight"] == 3

    assert operator.delete("/tenants/acme").json()["patch"] == {"tenants": {"acme": None}}
    assert operator.get("/tenants/acme").status_code == 404


def test_each_write_is_in_the_audit_with_actor_and_reason(operator):
    operator.post("/tenants?reason=new+customer", {"name": "acme"})
    operator.patch("/tenants/acme?reason=they+grew", {"weight": 2})
    operator.patch("/tenants/acme?reason=nothing+changes", {"weight": 2})
    operator.delete("/tenants/acme?reason=they+left")
    entries = list(AuditEntry.objects.order_by("pk"))
    assert [(entry.action, entry.reason) for entry in entries] == [
        ("create", "new customer"),
        ("update", "they grew"),
        ("delete", "they left"),
    ]
    assert {(entry.noun, entry.key, entry.actor_kind) for entry in entries} == {("tenant", "acme", "token")}
    assert entries[0].before is None
    assert entries[1].before is not None
    assert entries[1].before["weight"] == 1
    assert entries[1].after == {**entries[1].before, "weight": 2}
    assert entries[2].after is None


def test_a_refusal_names_every_field_and_rule_and_keeps_nothing(operator):
    body = {"name": "acme", "weight": 0, "tpm_limit": -1, "rpm_limit": "many", "n_cap": 2**53, "colour": "red"}
    answer = operator.post("/tenants", body)
    assert problems_of(answer) == {
        ("/weight", "range"),
        ("/tpm_limit", "range"),
        ("/rpm_limit", "int_type"),
        ("/n_cap", "range"),
        ("/colour", "unknown"),
    }
    assert "tpm_limit" in answer.json()["detail"]
    assert not Tenant.objects.exists()
    assert not AuditEntry.objects.exists()
    assert not Fragment.objects.exists()


@pytest.mark.parametrize("name", ["Acme", "", "a" * 64, "-acme", "a/b", "acme\n", 7, None])
def test_a_bad_name_is_refused(operator, name):
    assert {path for path, _ in problems_of(operator.post("/tenants", {"name": name}))} == {"/name"}


@pytest.mark.parametrize("body", [b"[]", b'"text"', b"null"])
def test_a_body_that_is_no_object_is_refused(operator, body):
    assert operator.call("POST", "/tenants", body).status_code == 422


def test_a_body_that_is_no_json_is_refused(operator):
    assert operator.call("POST", "/tenants", b"{").status_code == 400


@pytest.mark.parametrize("flag", [1, "true"])
def test_no_type_is_converted_into_another(operator, flag):
    operator.post("/tenants", {"name": "acme"})
    assert problems_of(operator.patch("/tenants/acme", {"blocked": flag})) == {("/blocked", "bool_type")}
    assert problems_of(operator.patch("/tenants/acme", {"weight": True})) == {("/weight", "int_type")}


def test_a_field_that_always_has_a_value_cannot_be_unset(operator):
    operator.post("/tenants", {"name": "acme"})
    assert problems_of(operator.patch("/tenants/acme", {"weight": None})) == {("/weight", "int_type")}


def test_a_dry_run_answers_with_the_diff_and_keeps_nothing(operator):
    answer = operator.post("/tenants?dry_run=true", {"name": "acme"}).json()
    assert answer["dry_run"] is True
    assert answer["patch"] == {"tenants": {"acme": {"weight": 1, "blocked": False}}}
    assert answer["item"]["name"] == "acme"
    assert not Tenant.objects.exists()
    assert not AuditEntry.objects.exists()


def test_a_taken_name_is_a_conflict_and_leaves_the_first(operator):
    operator.post("/tenants", {"name": "acme", "weight": 2})
    assert operator.post("/tenants", {"name": "acme", "weight": 9}).status_code == 409
    assert Tenant.objects.get().weight == 2


@pytest.mark.parametrize("reason", ["", "%20", "x" * 501, "a%00b"])
def test_a_write_without_a_usable_reason_is_refused(operator, reason):
    assert problems_of(operator.call("POST", f"/tenants?reason={reason}", {"name": "acme"})) & {
        ("/reason", "length"),
        ("/reason", "characters"),
    }
    assert not Tenant.objects.exists()


def test_lists_come_in_pages_by_name_with_one_query(operator, django_assert_max_num_queries):
    for name in ("c", "a", "b"):
        operator.post("/tenants", {"name": name, "models": []})
    # One for the token, one for the rows.
    with django_assert_max_num_queries(2):
        first = operator.get("/tenants?limit=2").json()
    assert [item["name"] for item in first["items"]] == ["a", "b"]
    second = operator.get(f"/tenants?limit=2&after={first['next']}").json()
    assert [item["name"] for item in second["items"]] == ["c"]
    assert second["next"] is None


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "after=%00"])
def test_a_bad_page_is_refused(operator, query):
    assert operator.get(f"/tenants?{query}").status_code == 422


@pytest.mark.parametrize("name", ["nobody", "No-Name", "%00"])
def test_an_unknown_tenant_is_not_found_by_name(operator, name):
    assert operator.get(f"/tenants/{name}").status_code == 404
    assert operator.patch(f"/tenants/{name}", {}).status_code == 404
    assert operator.delete(f"/tenants/{name}").status_code == 404


def test_its_priority_classes_must_exist_and_hold_its_default(operator):
    operator.post("/priority-classes", {"name": "batch", "rank": 10})
    operator.post("/priority-classes", {"name": "chat", "rank": 1})
    body = {"name": "acme", "priority_classes": ["batch", "gold"], "default_priority_class": "silver"}
    assert problems_of(operator.post("/tenants", body)) == {
        ("/priority_classes/gold", "reference"),
        ("/default_priority_class", "reference"),
        ("/default_priority_class", "one_of"),
    }
    made = operator.post("/tenants", {"name": "acme", "priority_classes": ["chat", "batch", "chat"]}).json()
    assert made["item"]["priority_classes"] == ["batch", "chat"]
    assert made["patch"]["tenants"]["acme"]["priority_classes"] == {"batch": True, "chat": True}


def test_an_empty_list_allows_nothing_and_null_allows_all(operator):
    operator.post("/tenants", {"name": "acme", "models": []})
    assert compiled("tenants", "acme")["models"] == {}
    operator.patch("/tenants/acme", {"models": None})
    assert "models" not in compiled("tenants", "acme")


def test_what_it_names_of_session_limits_and_cache_policies_must_exist(operator):
    refused = operator.post("/tenants", {"name": "acme", "session_limits": "agents", "cache_policy": "faq"})
    assert problems_of(refused) == {("/session_limits", "reference"), ("/cache_policy", "reference")}
    operator.post("/session-limits", {"name": "agents"})
    operator.post("/cache-policies", {"name": "faq"})
    made = operator.post("/tenants", {"name": "acme", "session_limits": "agents", "cache_policy": "faq"}).json()
    assert (made["item"]["session_limits"], made["item"]["cache_policy"]) == ("agents", "faq")
    content = compiled("tenants", "acme")
    assert (content["session_limits"], content["cache_policy"]) == ("agents", "faq")
    operator.patch("/tenants/acme", {"session_limits": None, "cache_policy": None})
    assert compiled("tenants", "acme") == {"weight": 1, "blocked": False}


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "x" * 65, "localtime", "../etc/passwd", None, 3])
def test_a_time_zone_that_is_none_is_refused(operator, zone):
    answer = operator.post("/tenants", {"name": "acme", "time_zone": zone})
    assert {path for path, _ in problems_of(answer)} == {"/time_zone"}


def test_defaults_of_the_row_are_those_of_the_wire_format():
    ours, theirs = TenantFields(), snapshot.Tenant()
    assert (ours.weight, ours.blocked) == (theirs.weight, theirs.blocked)
    assert (ours.time_zone, dict(ours.schedule)) == (theirs.time_zone, {})


_limits = st.one_of(st.none(), st.integers(1, 2**53 - 1))
_minutes = st.integers(0, 1439).map(lambda minute: f"{minute // 60:02}:{minute % 60:02}")
_hours = st.fixed_dictionaries(
    {"from": _minutes, "until": _minutes, "rpm_limit": st.integers(0, 9)},
    optional={
        "order": st.integers(0, 2**53 - 1),
        "days": st.one_of(st.none(), st.lists(st.sampled_from(WEEKDAYS), min_size=1, max_size=7)),
        "tpm_limit": _limits,
        "max_parallel_requests": _limits,
    },
)


@pytest.mark.django_db
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    fields=st.fixed_dictionaries(
        {},
        optional={
            "weight": st.integers(1, 2**53 - 1),
            "blocked": st.booleans(),
            **dict.fromkeys(("tpm_limit", "rpm_limit", "max_parallel_requests", "max_tokens_cap", "n_cap"), _limits),
            "daily_token_budget": _limits,
            "time_zone": st.sampled_from(["UTC", "Europe/Istanbul"]),
            "schedule": st.dictionaries(st.sampled_from(["nights", "office"]), _hours),
            "models": st.one_of(st.none(), st.just([])),
            "priority_classes": st.one_of(st.none(), st.lists(st.sampled_from(["chat", "batch"]))),
        },
    )
)
def test_what_a_tenant_compiles_into_restores_it(fields):
    with unit_of_work(SYSTEM, "a test", dry_run=True) as unit:
        for name in ("chat", "batch"):
            services.PRIORITY_CLASSES.create(unit, name, {"rank": 1})
        services.create(unit, "acme", fields)
        content = compiled("tenants", "acme")
        assert content is not None
        assert type_problems(content, snapshot.Tenant) == []
        restore = sections["tenants"].restore
        assert restore is not None
        services.update(unit, "acme", {"weight": 7, "tpm_limit": 7, "models": [], "priority_classes": ["chat"]})
        restore(unit, "acme", content)
        assert compiled("tenants", "acme") == content
        restore(unit, "acme", None)
        assert sections["tenants"].compile("acme") is None
        restore(unit, "acme", content)
        assert compiled("tenants", "acme") == content


@pytest.mark.django_db
def test_restoring_a_field_of_another_version_is_refused_by_name():
    with pytest.raises(Refused) as refused, unit_of_work(SYSTEM, "a test") as unit:
        services.TENANTS.restore(unit, "acme", {"weight": 1, "colour": "red"})
    assert [problem.path for problem in refused.value.problems] == ["/colour"]


@pytest.fixture
def chat(admin):
    admin.post("/models", {"name": "chat-v1", "max_context_tokens": 8192})
    admin.post("/aliases", {"name": "chat", "model": "chat-v1"})
    return admin


def test_a_tenant_stays_with_a_version_that_it_is_pinned_to(chat):
    made = chat.post("/tenants", {"name": "acme", "pins": {"chat": "chat-v1"}})
    assert made.json()["patch"]["tenants"]["acme"]["pins"] == {"chat": "chat-v1"}
    assert type_problems(compiled("tenants", "acme"), snapshot.Tenant) == []
    freed = chat.patch("/tenants/acme", {"pins": {}}).json()
    assert (freed["patch"]["tenants"]["acme"], freed["item"]["pins"]) == ({"pins": None}, {})


def test_a_pin_of_or_to_what_does_not_exist_is_refused_by_name(chat):
    answer = chat.post("/tenants", {"name": "acme", "pins": {"chat": "chat-v9", "talk": "chat-v1"}})
    assert problems_of(answer) == {
        ("/tenants/acme/pins/chat", "reference"),
        ("/tenants/acme/pins/talk", "reference"),
    }
    assert not Tenant.objects.exists()


def test_a_tenant_is_allowed_what_an_alias_stands_for(chat):
    made = chat.post("/tenants", {"name": "acme", "models": ["chat"]})
    assert made.status_code == 201, made.content
    assert problems_of(chat.delete("/aliases/chat")) == {("/tenants/acme/models/chat", "reference")}
    assert problems_of(chat.patch("/tenants/acme", {"models": ["talk"]})) == {
        ("/tenants/acme/models/talk", "reference")
    }


def test_what_a_pin_names_stays(chat):
    chat.post("/tenants", {"name": "acme", "pins": {"chat": "chat-v1"}})
    assert problems_of(chat.delete("/aliases/chat")) == {("/tenants/acme/pins/chat", "reference")}
    chat.patch("/tenants/acme", {"pins": {}})
    assert chat.delete("/aliases/chat").status_code == 200
