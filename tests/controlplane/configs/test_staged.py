"""Staged publish: some targets get a change first; then all do, or nobody."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.configs import stage_watch, stages
from controlplane.configs.heads import Heads
from controlplane.configs.models import Revision, Stage
from controlplane.core.models import AuditEntry, Role
from controlplane.telemetry import query
from controlplane.tenants.models import TemporaryLimits
from tests.controlplane.configs.conftest import ENGINE
from tests.controlplane.conftest import REASON, Rest
from tests.controlplane.core.people import person, token_of

CHANGE = {"tenants": {"acme": {"tpm_limit": 7}}}


def begin(rest: Rest, query: str = "", **fields: Any) -> Any:
    return rest.post(f"/config/stages?{REASON}{query}", {"patch": CHANGE, "targets": ["gateway/gw-1"], **fields})


def begun(rest: Rest, query: str = "", **fields: Any) -> str:
    answer = begin(rest, query, **fields)
    assert answer.status_code == 201, answer.content
    return f"/config/stages/{answer.json()['item']['id']}"


def limit_at(heads: Heads, name: str) -> Any:
    assert heads.newest is not None
    return heads.newest.slice("gateway", name).content["tenants"]["acme"].get("tpm_limit")


def acknowledge(target: Any, heads: Heads, **changes: Any) -> None:
    head = heads.newest
    assert head is not None
    hash = head.slice(target.row.kind, target.row.name).hash
    answer = target.post("/config/ack", {"revision": head.number, "hash": hash, "applied_at": 1, **changes})
    assert answer.status_code == 200, answer.content


def look_later(seconds: float = 0) -> None:
    """A look, so many seconds after it is due next."""
    assert stage_watch.look(Stage.objects.latest("pk").look_at + timedelta(seconds=seconds))


@pytest.fixture
def gateways(target_of: Any, fleet: Rest, newest: Callable[[], Heads]) -> Any:
    made = [target_of("gateway", name) for name in ("gw-1", "gw-2")]
    for gateway in made:
        acknowledge(gateway, newest())
    return made


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the query of a look answers: a value, None for no series, or an error. The last stays."""
    answers: list[Any] = [1.0]

    def instant(promql: str, at_ms: int) -> list[query.Sample]:
        answer = answers[0] if len(answers) == 1 else answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return [] if answer is None else [query.Sample({}, at_ms, answer)]

    monkeypatch.setattr(query, "instant", instant)
    return answers


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


def test_healthy_for_long_enough_it_is_promoted(
    gateways: Any, fleet: Rest, newest: Callable[[], Heads], answered: list[Any]
) -> None:
    stage = begun(fleet, watch={"expression": "up", "for_seconds": 30}, then="promote")
    look_later()
    assert fleet.get(stage).json()["said"] == "waits for gateway/gw-1"
    acknowledge(gateways[0], newest())
    look_later()
    look_later(20)
    assert (fleet.get(stage).json()["state"], fleet.get(stage).json()["said"]) == ("running", "healthy")
    look_later(10)
    assert (fleet.get(stage).json()["state"], fleet.get(stage).json()["said"]) == ("promoted", "healthy for 30 s")
    assert limit_at(newest(), "gw-2") == 7


@pytest.mark.parametrize("answer", [0.0, float("nan"), None])
def test_a_breach_takes_it_back_at_once(
    gateways: Any, fleet: Rest, newest: Callable[[], Heads], answered: list[Any], answer: Any
) -> None:
    stage = begun(fleet, watch={"expression": "up", "for_seconds": 30}, then="promote")
    acknowledge(gateways[0], newest())
    answered[:] = [1.0, answer]
    look_later()
    look_later()
    assert (fleet.get(stage).json()["state"], fleet.get(stage).json()["said"]) == ("taken_back", "not healthy: up")
    assert limit_at(newest(), "gw-1") == 60_000
    ended = AuditEntry.objects.filter(noun="stage").latest("id")
    assert (ended.actor_kind, ended.after and ended.after["said"]) == ("system", "not healthy: up")


@pytest.mark.parametrize(
    ("expression", "value", "state"),
    [
        ("errors < 1", 0.0, "running"),
        ("(errors or vector(0)) < 1", 0.0, "running"),
        ("(errors < 1) and (up == 1)", 0.0, "running"),
        ("errors < 1", float("nan"), "taken_back"),
        ("errors < 1 or up", 0.0, "taken_back"),
        ("errors < bool 1", 0.0, "taken_back"),
        ("errors < bool 1", 1.0, "running"),
    ],
)
def test_a_zero_that_a_comparison_let_through_is_well(
    gateways: Any,
    fleet: Rest,
    newest: Callable[[], Heads],
    answered: list[Any],
    expression: str,
    value: float,
    state: str,
) -> None:
    stage = begun(fleet, watch={"expression": expression, "for_seconds": 30}, then="promote")
    acknowledge(gateways[0], newest())
    answered[:] = [value]
    look_later()
    assert fleet.get(stage).json()["state"] == state


def test_only_the_third_look_in_a_row_without_an_answer_takes_it_back(
    gateways: Any, fleet: Rest, newest: Callable[[], Heads], answered: list[Any]
) -> None:
    stage = begun(fleet, watch={"expression": "up", "for_seconds": 30})
    acknowledge(gateways[0], newest())
    away = query.QueryError("away")
    answered[:] = [away, away, 1.0, away, away, away]
    for _ in range(5):
        look_later()
        assert fleet.get(stage).json()["state"] == "running"
    look_later()
    assert "3 times in a row the query has no answer: away" in fleet.get(stage).json()["said"]


def test_one_that_its_target_refuses_or_that_expires_is_taken_back(
    gateways: Any, fleet: Rest, newest: Callable[[], Heads]
) -> None:
    stage = begun(fleet)
    head = newest().newest
    assert head is not None
    gateways[0].post("/config/ack", {"revision": head.number, "error": [{"path": "/", "rule": "r", "message": "m"}]})
    look_later()
    assert fleet.get(stage).json()["said"] == "refused by gateway/gw-1"
    stage = begun(fleet, expires_in_seconds=10)
    acknowledge(gateways[0], newest())
    look_later(11)
    assert (fleet.get(stage).json()["state"], fleet.get(stage).json()["said"]) == ("taken_back", "it expired")


def test_a_target_that_is_revoked_is_not_waited_for(gateways: Any, fleet: Rest, newest: Callable[[], Heads]) -> None:
    stage = begun(fleet, targets=["gateway/gw-1", "gateway/gw-2"])
    acknowledge(gateways[0], newest())
    look_later()
    assert fleet.get(stage).json()["said"] == "waits for gateway/gw-2"
    assert fleet.post(f"/targets/{gateways[1].row.pk}/revoke").status_code == 200
    look_later()
    assert fleet.get(stage).json()["said"] == "its targets run it"
    fleet.post(f"/targets/{gateways[0].row.pk}/revoke")
    look_later()
    shown = fleet.get(stage).json()
    assert (shown["state"], shown["said"]) == ("taken_back", "all its targets were revoked")


def test_a_time_in_which_nobody_looked_counts_for_nothing(
    gateways: Any, fleet: Rest, newest: Callable[[], Heads], answered: list[Any]
) -> None:
    stage = begun(fleet, watch={"expression": "up", "for_seconds": 600}, then="promote")
    acknowledge(gateways[0], newest())
    look_later()
    look_later(600)
    assert fleet.get(stage).json()["state"] == "running"
    while fleet.get(stage).json()["state"] == "running":
        look_later(20)
    assert fleet.get(stage).json()["said"] == "healthy for 600 s"
    stage_row = Stage.objects.latest("pk")
    assert stage_row.healthy_since is not None
    assert stage_row.look_at >= stage_row.healthy_since + timedelta(seconds=600)


def test_what_a_metrics_server_says_is_kept_as_far_as_it_can_be(
    gateways: Any, fleet: Rest, newest: Callable[[], Heads], answered: list[Any]
) -> None:
    stage = begun(fleet, watch={"expression": "up", "for_seconds": 30}, then="promote")
    acknowledge(gateways[0], newest())
    answered[:] = [query.QueryError("half a pair: \ud800")]
    look_later()
    assert fleet.get(stage).json()["said"] == "the query has no answer: half a pair: \ufffd"


def test_one_worker_looks_and_one_that_died_is_followed_by_another(gateways: Any, fleet: Rest) -> None:
    begun(fleet)
    now = timezone.now()
    assert stage_watch.look(now)
    assert not stage_watch.look(now)
    assert stage_watch.look(now + timedelta(seconds=5))


def test_while_a_slow_query_is_asked_nobody_else_looks(
    gateways: Any, fleet: Rest, newest: Callable[[], Heads], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(fleet, watch={"expression": "up", "for_seconds": 30}, then="promote")
    acknowledge(gateways[0], newest())
    now = timezone.now()
    others: list[bool] = []

    def slow(promql: str, at_ms: int) -> list[query.Sample]:
        others.append(stage_watch.look(now + timedelta(seconds=29)))
        return [query.Sample({}, at_ms, 1.0)]

    monkeypatch.setattr(query, "instant", slow)
    assert stage_watch.look(now)
    assert others == [False]
    assert stages.claim(now + timedelta(seconds=4), timedelta(seconds=35)) is None
    # One that is killed meanwhile gives nothing back.
    assert stages.claim(now + timedelta(seconds=5), timedelta(seconds=35)) is not None
    assert not stage_watch.look(now + timedelta(seconds=39))
    assert stage_watch.look(now + timedelta(seconds=40))


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
