"""Staged publish: some targets get a change first; then all do, or nobody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from controlplane.configs.heads import Heads
from controlplane.configs.models import Revision, Stage
from controlplane.core.models import AuditEntry, Role
from controlplane.tenants.models import TemporaryLimits
from tests.controlplane.configs.conftest import ENGINE
from tests.controlplane.configs.staging import CHANGE, acknowledge, begin, begun, limit_at, look_later
from tests.controlplane.conftest import Rest
from tests.controlplane.core.people import person, token_of


def test_its_targets_alone_get_it_and_each_revision_says_so(
    gateways: Any, fleet: Rest, newest: Callable[[], Heads]
) -> None:
    stage = begun(fleet)
    heads = newest()
    assert (limit_at(heads, "gw-1"), limit_at(heads, "gw-2")) == (7, 60_000)
    last = Revision.objects.latest("number")
    assert (last.patch, last.stage and last.stage["patch"]) == ({}, CHANGE)
    assert fleet.get(f"/revisions/{last.number}").json()["stage"] == fleet.get(stage).json()["id"]
    shown = fleet.get("/config/convergence").json()
    assert shown["stage"] == fleet.get(stage).json()["id"]
    assert [(one["staged"], one["state"]) for one in shown["targets"]] == [(True, "pending"), (False, "applied")]
    acknowledge(gateways[0], heads)
    assert fleet.get("/config/convergence").json()["applied"] == 2
    assert fleet.get("/tenants/acme").json()["tpm_limit"] == 60_000


def test_a_process_that_starts_meanwhile_cuts_the_same_slices(
    gateways: Any, fleet: Rest, newest: Callable[[], Heads]
) -> None:
    begun(fleet)
    heads = newest()
    for between in (False, True):
        if between:
            fleet.patch("/tenants/acme", {"rpm_limit": 3})
            heads = newest()
        fresh = Heads(lambda sealed: sealed)
        fresh.refresh()
        for name in ("gw-1", "gw-2"):
            assert fresh.newest.slice("gateway", name).hash == heads.newest.slice("gateway", name).hash  # type: ignore[union-attr]


def test_other_writes_go_on_below_it(gateways: Any, fleet: Rest, newest: Callable[[], Heads]) -> None:
    begun(fleet)
    newest()
    assert fleet.patch("/tenants/acme", {"rpm_limit": 3}).status_code == 200
    assert fleet.post("/tenants", {"name": "new"}).status_code == 201
    heads = newest()
    for name, limit in (("gw-1", 7), ("gw-2", 60_000)):
        tenants = heads.newest.slice("gateway", name).content["tenants"]  # type: ignore[union-attr]
        assert (tenants["acme"]["rpm_limit"], tenants["acme"]["tpm_limit"], "new" in tenants) == (3, limit, True)


def test_what_it_changes_and_what_it_needs_is_refused_to_others(gateways: Any, fleet: Rest) -> None:
    fleet.post("/models", {"name": "org/m-2", "max_context_tokens": 4096})
    fleet.post("/priority-classes", {"name": "gold", "rank": 1})
    stage = begun(
        fleet,
        "&allow_removals=true",
        patch={"tenants": {"acme": {"tpm_limit": 7, "models": ["org/m-2"]}}, "priority_classes": {"gold": None}},
    )  # fmt: skip
    for answer in (
        fleet.patch("/tenants/acme", {"tpm_limit": 8}),
        fleet.delete("/tenants/acme"),
        fleet.delete("/models/org/m-2"),
        fleet.post("/tenants", {"name": "new", "default_priority_class": "gold"}),
        begin(fleet, patch={"tenants": {"other": {}}}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (409, "staged"), answer.content
    assert fleet.post(f"{stage}/take-back").status_code == 200
    assert fleet.delete("/models/org/m-2").status_code == 200


def test_people_of_some_tenants_are_refused_as_others_are_and_told_what_is_at_theirs(
    gateways: Any, fleet: Rest
) -> None:
    fleet.post("/tenants", {"name": "other"})
    begun(fleet, patch={"tenants": {**CHANGE["tenants"], "other": {"weight": 2}}})
    ops = token_of(person(Role.OPERATOR, ["acme"]))
    own = ops.patch("/tenants/acme", {"tpm_limit": 8})
    assert (own.status_code, own.json()["code"]) == (409, "staged")
    assert [problem["path"] for problem in own.json()["problems"]] == ["/tenants/acme"]
    assert ops.patch("/tenants/acme", {"rpm_limit": 30}).status_code == 200
    # What it changes at another tenant has come to nothing meanwhile; as it removes something, all of it is tried.
    Stage.objects.update(document_patch={"tenants": {"other": {"models": ["org/gone"]}}, "routes": {"all": None}})
    whole, part = (rest.patch("/tenants/acme", {"rpm_limit": 3}) for rest in (fleet, ops))
    for answer in (whole, part):
        assert (answer.status_code, answer.json()["code"]) == (409, "staged")
    assert [problem["path"] for problem in whole.json()["problems"]] == ["/tenants/other/models/org~1gone"]
    assert not part.json().get("problems")
    assert "Ask someone of the whole fleet" in part.json()["detail"]
    for told in ("other", "org/gone"):
        assert told in whole.content.decode()
        assert told not in part.content.decode()


def test_what_is_done_in_an_incident_is_not_held_up(gateways: Any, fleet: Rest, newest: Callable[[], Heads]) -> None:
    begun(fleet, patch={**CHANGE, "engines": {"e-1": {"served_model": "other"}}})
    assert fleet.post("/engines/e-1/cordon").status_code == 200
    fleet.post("/tenants/acme/temporary-limits", {"tpm_limit": 1, "expires_in_seconds": 60})
    assert TemporaryLimits.objects.count() == 1
    engine = newest().newest.slice("gateway", "gw-1").content["engines"]["e-1"]  # type: ignore[union-attr]
    assert (engine["served_model"], engine["cordoned"]) == ("other", True)


def test_nor_is_it_at_what_the_stage_removes(
    gateways: Any, fleet: Rest, target_of: Any, newest: Callable[[], Heads]
) -> None:
    gone = {"tenants": {"acme": None}, "engines": {"e-1": None}, "routes": {"all": None}}
    stage = begun(fleet, "&allow_removals=true", patch=gone)
    engine = {"name": "e-1", "state": "up", "kv_capacity_tokens": 5000}
    report = {"version": "1", "gpu_source": "nvml", "simulated": False, "gpus": [], "engines": [engine], "acts": []}
    override = {"subject_kind": "engine", "subject": "e-1", "state": "open", "expires_in_seconds": 60}
    for rest, path, body in (
        (fleet, "/engines/e-1/cordon", {}),
        (fleet, "/nodes/n-1/cordon", {}),
        (fleet, "/tenants/acme/temporary-limits", {"tpm_limit": 1, "expires_in_seconds": 60}),
        (fleet, "/tenants/acme/keys", {}),
        (target_of("node", "n-1"), "/nodes/report", report),
    ):
        answer = rest.post(path, body)
        assert answer.status_code in (200, 201), answer.content
    # The key that is new goes with its tenant: its targets get what holds together.
    content = newest().newest.slice("gateway", "gw-1").content  # type: ignore[union-attr]
    assert (content["tenants"], content["keys"], content["engines"]) == ({}, {}, {})
    assert fleet.post("/overrides", override).status_code == 201
    refused = fleet.post(f"{stage}/promote")
    assert refused.status_code == 422
    assert "override" in refused.json()["detail"]


def test_an_engine_that_it_makes_is_cordoned_with_its_node(
    gateways: Any, fleet: Rest, newest: Callable[[], Heads]
) -> None:
    begun(fleet, patch={"engines": {"e-2": {field: value for field, value in ENGINE.items() if field != "name"}}})
    for act, cordoned in (("cordon", True), ("uncordon", False)):
        assert fleet.post(f"/nodes/n-1/{act}").status_code == 200
        engines = newest().newest.slice("gateway", "gw-1").content["engines"]  # type: ignore[union-attr]
        assert [engine["cordoned"] for engine in engines.values()] == [cordoned, cordoned]


def test_a_node_that_its_engine_stands_on_stays_until_it_has_ended(gateways: Any, fleet: Rest) -> None:
    for node in ("n-2", "n-3"):
        assert fleet.post("/nodes", {"name": node}).status_code == 201
    fields = {field: value for field, value in ENGINE.items() if field != "name"}
    stage = begun(fleet, patch={"engines": {"e-2": {**fields, "node": "n-2"}}})
    refused = fleet.delete("/nodes/n-2")
    assert (refused.status_code, refused.json()["code"]) == (409, "staged")
    assert "n-2" in refused.json()["detail"]
    assert fleet.delete("/nodes/n-3").status_code == 200, "it is named by nobody"
    assert fleet.post(f"{stage}/promote").status_code == 200
    assert fleet.get("/engines/e-2").json()["node"] == "n-2"


def test_a_tenants_write_costs_no_more_however_many_others_it_changes(
    gateways: Any, fleet: Rest, django_assert_max_num_queries: Any
) -> None:
    names = ["acme", *(f"t-{number}" for number in range(60))]
    for name in names[1:]:
        fleet.post("/tenants", {"name": name})
    silver = {"tenants": {name: {"default_priority_class": "silver"} for name in names}}
    stage = begun(fleet, patch={**silver, "priority_classes": {"silver": {"rank": 2}}})
    for path, send, body in (
        ("/tenants", fleet.post, {"name": "new"}),
        ("/tenants/new/keys", fleet.post, {}),
        ("/tenants/new", fleet.patch, {"tpm_limit": 2}),
        ("/tenants/acme", fleet.patch, {"tpm_limit": 2}),
    ):
        with django_assert_max_num_queries(50):
            assert send(path, body).status_code in (200, 201)
    # What is against what it makes of the same tenant is seen all the same.
    fleet.post("/priority-classes", {"name": "gold", "rank": 1})
    answer = fleet.patch("/tenants/acme", {"priority_classes": ["gold"]})
    assert (answer.status_code, answer.json()["code"]) == (409, "staged")
    assert [problem["path"].split("/")[:3] for problem in answer.json()["problems"]] == [["", "tenants", "acme"]]
    assert fleet.post(f"{stage}/promote").status_code == 200
    assert fleet.get("/tenants/acme").json()["default_priority_class"] == "silver"


def test_promotion_gives_it_to_all_with_what_others_changed_meanwhile(
    gateways: Any, fleet: Rest, newest: Callable[[], Heads]
) -> None:
    stage = begun(fleet)
    acknowledge(gateways[0], newest())
    fleet.patch("/tenants/acme", {"rpm_limit": 3})
    staged = newest().newest.slice("gateway", "gw-1")  # type: ignore[union-attr]
    answer = fleet.post(f"{stage}/promote")
    assert (answer.status_code, answer.json()["patch"]) == (200, CHANGE)
    head = newest().newest
    assert head is not None
    assert head.slice("gateway", "gw-1").hash == head.slice("gateway", "gw-2").hash == staged.hash
    assert (head.stage, Revision.objects.latest("number").stage) == (None, None)
    assert fleet.get("/tenants/acme").json() | {"tpm_limit": 7, "rpm_limit": 3} == fleet.get("/tenants/acme").json()
    assert [entry.action for entry in AuditEntry.objects.filter(noun="stage").order_by("id")] == ["create", "update"]


def test_taken_back_its_targets_get_what_all_have(gateways: Any, fleet: Rest, newest: Callable[[], Heads]) -> None:
    stage = begun(fleet)
    before = newest().newest.slice("gateway", "gw-2")  # type: ignore[union-attr]
    answer = fleet.post(f"{stage}/take-back")
    assert answer.json()["patch"] == {"tenants": {"acme": {"tpm_limit": 60_000}}}
    head = newest().newest
    assert head is not None
    assert head.slice("gateway", "gw-1").hash == head.slice("gateway", "gw-2").hash == before.hash
    for act in ("promote", "take-back"):
        again = fleet.post(f"{stage}/{act}")
        assert (again.status_code, again.json()["code"]) == (409, "ended")


def test_an_engine_that_it_removed_comes_back_with_its_key_which_nobody_sees(
    gateways: Any, fleet: Rest, newest: Callable[[], Heads]
) -> None:
    fleet.patch("/engines/e-1", {"api_key": "sk-secret"})
    stage = begun(fleet, "&allow_removals=true", patch={"engines": {"e-1": None}, "routes": {"all": None}})
    assert "e-1" not in newest().newest.slice("gateway", "gw-1").content["engines"]  # type: ignore[union-attr]
    answer = fleet.post(f"{stage}/take-back")
    assert answer.json()["patch"]["engines"]["e-1"]["api_key"] == "(hidden)"
    assert "encrypted" not in answer.content.decode()
    told = newest().newest.slice("gateway", "gw-1").content["engines"]["e-1"]  # type: ignore[union-attr]
    assert told["api_key"] == "sk-secret"


def test_a_read_answers_the_tag_that_its_beginning_answered(gateways: Any, fleet: Rest) -> None:
    made = begin(fleet)
    stage = f"/config/stages/{made.json()['item']['id']}"
    assert fleet.get(stage)["etag"] == made["etag"]
    look_later()
    assert fleet.get(stage)["etag"] != made["etag"]


def test_what_began_and_ended_unpublished_publishes_nothing(
    gateways: Any, fleet: Rest, newest: Callable[[], Heads]
) -> None:
    number = newest().newest.number  # type: ignore[union-attr]
    fleet.post(f"{begun(fleet)}/take-back")
    assert newest().newest.number == number  # type: ignore[union-attr]


def test_a_dry_run_shows_the_patch_and_begins_nothing(gateways: Any, fleet: Rest) -> None:
    said = begin(fleet, "&dry_run=true").json()
    assert (said["patch"], Stage.objects.count()) == (CHANGE, 0)


@pytest.mark.parametrize(
    ("fields", "path", "rule"),
    [
        ({"targets": ["gateway/absent"]}, "/targets/gateway~1absent", "reference"),
        ({"targets": ["gw-1"]}, "/targets/0", "string_pattern_mismatch"),
        ({"targets": None}, "/targets", "one_of"),
        ({"first": 1}, "/targets", "one_of"),
        ({"document": {}}, "/document", "one_of"),
        ({"patch": {"tenants": None}}, "/patch/tenants", "type"),
        ({"patch": {"keys": {}}}, "/keys", "unknown"),
        ({"patch": {"tenants": {"acme": {"tpm_limit": -1}}}}, "/tenants/acme/tpm_limit", "range"),
        ({"patch": {"tenants": {"acme": {"models": ["absent"]}}}}, "/tenants/acme/models/absent", "reference"),
        ({"patch": {"tenants": {"acme": {"tpm_limit": 60_000}}}}, "/document", "no_change"),
        ({"then": "promote"}, "/then", "watch"),
        ({"watch": {"expression": "sum(", "for_seconds": 5}}, "/watch/expression", "promql"),
        ({"watch": {"expression": "up", "for_seconds": 3600}}, "/watch/for_seconds", "range"),
        ({"expires_in_seconds": 1}, "/expires_in_seconds", "greater_than_equal"),
    ],
)
def test_what_is_wrong_with_it_is_named(gateways: Any, fleet: Rest, fields: Any, path: str, rule: str) -> None:
    answer = begin(fleet, **fields)
    assert answer.status_code == 422, answer.content
    assert [(problem["path"], problem["rule"]) for problem in answer.json()["problems"]] == [(path, rule)]
    assert Stage.objects.count() == 0


def test_the_first_gateways_by_name_are_taken(gateways: Any, fleet: Rest, target_of: Any) -> None:
    target_of("node", "a-node")
    answer = begin(fleet, targets=None, first=1, document={"format": "headworks/1", "routes": {}}, patch=None)
    assert (answer.status_code, answer.json()["code"]) == (409, "removals")
    said = begin(fleet, "&allow_removals=true", targets=None, first=5, patch={"routes": {"all": None}}).json()
    assert said["item"]["targets"] == ["gateway/gw-1", "gateway/gw-2"]


def test_stages_are_listed_newest_first(gateways: Any, fleet: Rest) -> None:
    for _ in range(3):
        fleet.post(f"{begun(fleet)}/take-back")
    page = fleet.get("/config/stages?limit=2").json()
    rest = fleet.get(f"/config/stages?limit=2&after={page['next']}").json()
    ids = [item["id"] for item in page["items"] + rest["items"]]
    assert (ids, rest["next"]) == (sorted(ids, reverse=True), None)
    assert len(ids) == 3
