from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from controlplane.configs.heads import Heads
from controlplane.configs.models import Fragment
from controlplane.core.changes import sections
from controlplane.tenants.services import TENANTS
from tests.controlplane.configs.conftest import MODEL
from tests.controlplane.conftest import Rest

RESTORABLE = ("tenants", "priority_classes", "models", "pools", "routes")


def whole(rest: Rest) -> Any:
    (newest,) = rest.get("/revisions?limit=1").json()["items"]
    return rest.get(f"/revisions/{newest['number']}/content").json()["content"]


def restorable(content: Any) -> Any:
    return {section: entries for section in RESTORABLE if (entries := content.get(section))}


def test_a_rollback_is_a_new_revision_with_the_old_content(fleet: Rest, newest: Callable[[], Heads]) -> None:
    newest()
    before = whole(fleet)
    fleet.patch("/tenants/acme", {"tpm_limit": 1, "models": None})
    fleet.post("/models", {**MODEL, "name": "org/m-2"})
    fleet.post("/pools", {"name": "long", "model": "org/m-2"})
    fleet.post("/tenants", {"name": "new", "models": ["org/m-2"]})
    fleet.post("/routes", {"name": "new", "match": {"tenants": ["new"]}, "pools": {"long": 1000}})
    fleet.delete("/routes/all")
    newest()
    answer = fleet.post("/revisions/1/rollback")
    assert answer.status_code == 200, answer.content
    assert answer.json()["patch"]["tenants"]["new"] is None
    newest()
    assert restorable(whole(fleet)) == restorable(before)
    shown = fleet.get("/revisions/3").json()
    assert (shown["rollback_to"], shown["reasons"]) == (1, ["because of a test"])
    assert {"rollback", "tenant", "pool"} <= {entry["noun"] for entry in shown["audit"]}


def test_each_entry_is_compiled_once(fleet: Rest, newest: Callable[[], Heads], monkeypatch: pytest.MonkeyPatch) -> None:
    """While it runs nobody else can write."""
    newest()
    fleet.patch("/tenants/acme", {"tpm_limit": 1})
    newest()
    compiled: list[str] = []
    section = sections["tenants"]

    def compile_many(keys: Any) -> Any:
        compiled.extend(keys)
        return TENANTS.compile_many(keys)

    monkeypatch.setitem(sections, "tenants", dataclasses.replace(section, compile_many=compile_many))
    assert fleet.post("/revisions/1/rollback").status_code == 200
    assert compiled == ["acme"]


def test_it_neither_revives_a_blocked_key_nor_lifts_a_cordon(fleet: Rest, newest: Callable[[], Heads]) -> None:
    fleet.post("/tenants/acme/keys", {})
    (key,) = fleet.get("/tenants/acme/keys").json()["items"]
    newest()
    fleet.patch(f"/keys/{key['id']}", {"blocked": True})
    fleet.post("/nodes/n-1/cordon")
    fleet.patch("/tenants/acme", {"tpm_limit": 1})
    newest()
    state = {section: whole(fleet)[section] for section in ("keys", "engines", "nodes")}
    assert all(entry["blocked"] for entry in state["keys"].values())
    fleet.post("/revisions/1/rollback")
    newest()
    assert {section: whole(fleet)[section] for section in state} == state
    assert whole(fleet)["tenants"]["acme"]["tpm_limit"] == 60_000


def test_a_dry_run_shows_the_way_back_and_keeps_nothing(fleet: Rest, newest: Callable[[], Heads]) -> None:
    newest()
    fleet.patch("/tenants/acme", {"tpm_limit": 1})
    answer = fleet.post("/revisions/1/rollback?dry_run=true")
    assert answer.json()["patch"] == {"tenants": {"acme": {"tpm_limit": 60_000}}}
    assert fleet.get("/tenants/acme").json()["tpm_limit"] == 1


def test_keys_that_go_with_their_tenants_are_warned_of(fleet: Rest, newest: Callable[[], Heads]) -> None:
    newest()
    for name, keys in (("late", 2), ("later", 1), ("keyless", 0)):
        fleet.post("/tenants", {"name": name})
        for _ in range(keys):
            assert fleet.post(f"/tenants/{name}/keys").status_code == 201
    newest()
    for dry_run in ("true", "false"):
        warnings = fleet.post(f"/revisions/1/rollback?dry_run={dry_run}").json()["warnings"]
        assert {warning["path"]: warning["message"] for warning in warnings} == {
            "/tenants/late": "deleted with it: 2 keys, for good",
            "/tenants/later": "deleted with it: 1 key, for good",
        }
    newest()
    assert fleet.post("/revisions/2/rollback").json()["warnings"] == []
    assert fleet.get("/tenants/late/keys").json()["items"] == []


def test_going_back_to_where_one_is_changes_nothing(fleet: Rest, newest: Callable[[], Heads]) -> None:
    heads = newest()
    assert fleet.post("/revisions/1/rollback").json()["patch"] == {}
    assert newest().newest is heads.newest


def test_it_refuses_by_name_what_is_still_used(fleet: Rest, newest: Callable[[], Heads]) -> None:
    newest()
    fleet.post("/pools", {"name": "long", "model": "org/m-1"})
    newest()
    engine = {"name": "e-2", "url": "http://10.0.0.2:8000", "pool": "long", "served_model": "m"}
    fleet.post("/engines", engine)
    before = dict(Fragment.objects.values_list("key", "content"))
    answer = fleet.post("/revisions/1/rollback")
    assert answer.status_code == 409, answer.content
    assert "e-2" in answer.json()["detail"]
    assert dict(Fragment.objects.values_list("key", "content")) == before


@pytest.mark.parametrize("number", [2, 10**12])
def test_an_unknown_revision_is_named(fleet: Rest, newest: Callable[[], Heads], number: int) -> None:
    newest()
    answer = fleet.post(f"/revisions/{number}/rollback")
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_revision")
    assert "there are 1 to 1" in answer.json()["detail"]
