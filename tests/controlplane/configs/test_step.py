"""What a write leaves in the configuration, and what it may not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from controlplane.configs.heads import Heads
from controlplane.configs.models import Fragment, Revision
from controlplane.configs.step import touch_everything
from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.models import AuditEntry
from tests.controlplane.configs.conftest import MODEL
from tests.controlplane.conftest import Rest


def fragments() -> dict[tuple[str, str], Any]:
    return {(row.section, row.key): row.content for row in Fragment.objects.all()}


def refusal(answer: Any) -> list[tuple[str, str]]:
    assert answer.status_code in (409, 422), answer.content
    return [(problem["path"], problem["rule"]) for problem in answer.json()["problems"]]


def test_a_write_answers_with_the_patch_it_brings(fleet: Rest) -> None:
    answer = fleet.patch("/tenants/acme", {"tpm_limit": 1000}).json()
    assert answer["patch"] == {"tenants": {"acme": {"tpm_limit": 1000}}}
    entry = AuditEntry.objects.get(change_id=answer["change_id"])
    assert (entry.touches_config, entry.revision) == (True, None)


def test_a_write_that_changes_nothing_leaves_nothing_to_publish(fleet: Rest) -> None:
    Fragment.objects.update(dirty=False)
    assert fleet.patch("/tenants/acme", {"tpm_limit": 60_000}).json()["patch"] == {}
    assert not Fragment.objects.filter(dirty=True).exists()


def test_a_dry_run_shows_the_patch_and_keeps_nothing(fleet: Rest) -> None:
    before, entries = fragments(), AuditEntry.objects.count()
    answer = fleet.patch("/tenants/acme?dry_run=true", {"tpm_limit": None}).json()
    assert answer["patch"] == {"tenants": {"acme": {"tpm_limit": None}}}
    assert fragments() == before
    assert AuditEntry.objects.count() == entries


@pytest.mark.parametrize(
    ("path", "body", "problem"),
    [
        ("/tenants", {"name": "t", "models": ["absent"]}, ("/tenants/t/models/absent", "reference")),
        (
            "/tenants",
            {"name": "t", "default_priority_class": "absent"},
            ("/tenants/t/default_priority_class", "reference"),
        ),
        ("/routes", {"name": "r", "pools": {"absent": 1000}}, ("/routes/r/pools/absent", "reference")),
        ("/routes", {"name": "r", "pools": {"short": 999}}, ("/routes/r/pools", "sum")),
        (
            "/routes",
            {"name": "r", "match": {"tenants": ["absent"]}, "pools": {"short": 1000}},
            ("/routes/r/match/tenants/absent", "reference"),
        ),
    ],
)
def test_it_refuses_what_a_target_would(fleet: Rest, path: str, body: Any, problem: tuple[str, str]) -> None:
    before, entries = fragments(), AuditEntry.objects.count()
    answer = fleet.post(path, body)
    assert answer.status_code == 422, answer.content
    # A service may know the rule itself, and name the field of the body then.
    assert any(problem[0].endswith(path) and problem[1] == rule for path, rule in refusal(answer)), answer.content
    assert fragments() == before
    assert AuditEntry.objects.count() == entries


def test_every_reason_is_given_at_once(fleet: Rest) -> None:
    assert len(refusal(fleet.post("/tenants", {"name": "t", "models": ["absent-1", "absent-2"]}))) == 2


def test_it_refuses_to_remove_what_others_name(fleet: Rest) -> None:
    fleet.post("/models", {**MODEL, "name": "org/m.2"})
    fleet.patch("/tenants/acme", {"models": ["org/m.2"]})
    assert refusal(fleet.delete("/models/org/m.2")) == [("/tenants/acme/models/org~1m.2", "reference")]
    fleet.post("/priority-classes", {"name": "gold", "rank": 1})
    fleet.post("/routes", {"name": "r", "match": {"priority_classes": ["gold"]}, "pools": {"short": 1000}})
    assert refusal(fleet.delete("/priority-classes/gold")) == [("/routes/r/match/priority_classes/gold", "reference")]
    fleet.delete("/routes/r")
    assert fleet.delete("/priority-classes/gold").status_code == 200


def test_it_refuses_to_remove_a_tenant_that_a_route_names(fleet: Rest) -> None:
    fleet.post("/routes", {"name": "for-acme", "match": {"tenants": ["acme"]}, "pools": {"short": 1000}})
    assert ("/routes/for-acme/match/tenants/acme", "reference") in refusal(fleet.delete("/tenants/acme"))


def test_a_routed_pool_keeps_its_last_engine(fleet: Rest) -> None:
    answer = fleet.delete("/engines/e-1")
    assert refusal(answer) == [("/pools/short", "last_engine")]
    assert "all" in answer.json()["detail"]
    fleet.post("/pools", {"name": "long", "model": "org/m-1"})
    assert refusal(fleet.patch("/engines/e-1", {"pool": "long"})) == [("/pools/short", "last_engine")]


def test_another_engine_or_no_route_lets_the_last_one_go(fleet: Rest) -> None:
    fleet.post("/engines", {"name": "e-2", "url": "http://10.0.0.2:8000", "pool": "short", "served_model": "m"})
    assert fleet.delete("/engines/e-2").status_code == 200
    assert fleet.delete("/routes/all").status_code == 200
    assert fleet.delete("/engines/e-1").status_code == 200


def test_a_cordon_of_the_last_engine_that_works_is_done_with_a_warning(fleet: Rest) -> None:
    fleet.post("/engines", {"name": "e-2", "url": "http://10.0.0.2:8000", "pool": "short", "served_model": "m"})

    def warned(path: str) -> list[tuple[str, str]]:
        answer = fleet.post(path, {})
        assert answer.status_code == 200, answer.content
        return [(each["path"], each["rule"]) for each in answer.json()["warnings"] if each["rule"] != "oversubscribed"]

    assert warned("/engines/e-1/cordon") == []
    assert warned("/engines/e-2/cordon?dry_run=true") == [("/pools/short", "no_working_engine")]
    assert warned("/engines/e-2/cordon") == [("/pools/short", "no_working_engine")]
    assert warned("/engines/e-1/uncordon") == []
    fleet.delete("/routes/all")
    assert warned("/engines/e-1/cordon") == []


def test_an_engines_key_is_shown_nowhere(fleet: Rest, newest: Callable[[], Heads]) -> None:
    secret = "sk-engine-secret"
    answer = fleet.patch("/engines/e-1", {"api_key": secret})
    assert answer.json()["patch"] == {"engines": {"e-1": {"api_key": "(hidden)"}}}
    head = newest().newest
    assert head is not None
    assert head.slice("gateway", "any").content["engines"]["e-1"]["api_key"] == secret
    sealed = head.content["engines"]["e-1"]["api_key_encrypted"]
    for stored in (Fragment.objects.values_list("content"), Revision.objects.values_list("patch", "inverse", "whole")):
        assert secret not in str(list(stored))
    pages = (
        "/config",
        "/config?revision=1",
        "/revisions",
        "/revisions/1",
        "/revisions/1/content",
        "/revisions/1/diff?to=1",
        "/config/convergence",
        "/audit",
        "/engines",
    )
    for page in pages:
        body = fleet.get(page).content.decode()
        assert secret not in body
        assert sealed not in body


def test_the_cost_of_a_quota_change_does_not_grow_with_the_tenants(
    fleet: Rest, newest: Callable[[], Heads], django_assert_max_num_queries: Any
) -> None:
    fleet.patch("/engines/e-1", {"kv_capacity_tokens": 1000})
    newest()
    Fragment.objects.bulk_create(
        Fragment(section="tenants", key=f"t-{i}", content={"weight": 1, "models": {"org/m-1": True}}, dirty=False)
        for i in range(2000)
    )
    with django_assert_max_num_queries(20) as queries:
        fleet.patch("/tenants/acme", {"tpm_limit": 5})
    read = [query["sql"] for query in queries.captured_queries if "configs_fragment" in query["sql"]]
    assert read
    # By key, or what waits to be published.
    assert all('"key" IN' in sql or "UPDATE" in sql or '"dirty"' in sql.partition("WHERE")[2] for sql in read), read


def test_a_compile_from_nothing_gives_the_same(fleet: Rest) -> None:
    before = fragments()
    Fragment.objects.filter(section="tenants").delete()
    Fragment.objects.filter(section="routes").update(content={"order": 1})
    Fragment.objects.create(section="pools", key="ghost", content={"model": "org/m-1"})
    with unit_of_work(SYSTEM, "compile anew") as unit:
        touch_everything(unit)
    after = fragments()
    assert after.pop(("pools", "ghost")) is None
    assert after == before
