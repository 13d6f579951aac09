"""Acts from the asking to their end, over REST, a node's reports and the configuration."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, get_args, get_type_hints

import pytest
from django.utils import timezone

from controlplane import settings_rows
from controlplane.core.changes import SYSTEM, sections, unit_of_work
from controlplane.core.errors import Refused
from controlplane.core.fields import epoch_ms
from controlplane.core.models import AuditEntry, Target
from controlplane.fleet.acts_api import State
from controlplane.fleet.models import Act, ActState
from controlplane.fleet.services import ENGINES, MODELS, NODES, POOLS, acts, take_report
from controlplane.fleet.tasks import expire_acts, prune_acts
from tests.controlplane.conftest import Rest
from tests.controlplane.core.configuration import compiled
from tests.controlplane.core.racing import at_once, meeting, two_writers
from tests.controlplane.fleet.conftest import ENGINE, MODEL, enrolled, problem_paths
from wire.acts import ACTIONS
from wire.messages import ActReport, NodeReport

SLEEP = {"action": "sleep", "engine": "e1", "arguments": {"level": 2}}


def ask(caller: Rest, body: dict[str, Any] | None = None, query: str = "") -> dict[str, Any]:
    answer = caller.post(f"/acts{query}", body or SLEEP)
    assert answer.status_code == 201, answer.content
    item: dict[str, Any] = answer.json()["item"]
    return item


def tell(agent: Rest, act_id: str, state: str, **facts: Any) -> dict[str, Any]:
    report = {"id": act_id, "state": state, "at_ms": epoch_ms(timezone.now()), **facts}
    answer = agent.post("/nodes/report", {"version": "1", "acts": [report]})
    assert answer.status_code == 200, answer.content
    taken: dict[str, Any] = answer.json()
    return taken


def rules(answer: Any) -> dict[str, str]:
    assert answer.status_code == 422, answer.content
    return {problem["path"]: problem["rule"] for problem in answer.json()["problems"]}


def test_an_act_is_told_to_its_nodes_agent_until_it_has_ended(fleet, agent):
    item = ask(fleet)
    told = compiled("acts", item["id"])
    assert told == {
        "node": "n1",
        "action": "sleep",
        "order": item["order"],
        "issued_at_ms": told["issued_at_ms"],
        "expires_at_ms": told["issued_at_ms"] + 3_600_000,
        "engine": "e1",
        "arguments": {"level": 2},
    }
    assert sections["acts"].keys() == [item["id"]]
    tell(agent, item["id"], "running")
    assert compiled("acts", item["id"]) == told
    tell(agent, item["id"], "done", took_ms=1200, detail="level 2")
    assert sections["acts"].compile(item["id"]) is None
    assert sections["acts"].keys() == []
    ended = fleet.get(f"/acts/{item['id']}").json()
    assert (ended["state"], ended["took_ms"], ended["detail"]) == ("done", 1200, "level 2")
    assert sections["acts"].restore is None


def test_who_asked_and_why_is_kept_with_what_became_of_it(fleet, agent):
    item = ask(fleet, query="?reason=make+room")
    assert (item["reason"], item["state"], item["issued_by"].split("/")[1]) == ("make room", "waiting", "test")
    tell(agent, item["id"], "failed", reason="engine_error", detail="500: busy\x00")
    asked, ended = AuditEntry.objects.filter(noun="act", key=item["id"]).order_by("pk")
    assert (asked.action, asked.actor_kind, asked.reason) == ("create", "token", "make room")
    assert (ended.action, ended.actor_kind, ended.actor) == ("update", "target", "node/n1")
    assert ended.after is not None
    assert ended.after["result_reason"] == "engine_error"
    assert ended.after["detail"] == "500: busy\ufffd"


def test_the_last_lines_of_a_command_that_failed_are_kept(fleet, agent):
    item = ask(fleet)
    detail = f"{'x' * 1991}no memory"
    tell(agent, item["id"], "failed", reason="command_failed", detail=detail)
    assert fleet.get(f"/acts/{item['id']}").json()["detail"] == detail


def test_only_an_end_opens_a_unit_of_work(fleet, agent, django_assert_max_num_queries):
    item = ask(fleet)
    written = AuditEntry.objects.count()
    report = ActReport(item["id"], "running", epoch_ms(timezone.now()))
    take_report("n1", NodeReport(version="1", acts=[report]), timezone.now())
    assert Act.objects.get().state == "running"
    assert AuditEntry.objects.count() == written
    with django_assert_max_num_queries(12):
        take_report("n1", NodeReport(version="1", acts=[report]), timezone.now())


@pytest.mark.parametrize("then", ["running", "failed", "refused", "done"])
@pytest.mark.parametrize("first", ["done", "refused", "failed", "expired"])
def test_an_act_that_has_ended_stays_as_it_is(fleet, agent, first, then):
    item = ask(fleet)
    tell(agent, item["id"], first, reason="the first")
    written = AuditEntry.objects.count()
    assert tell(agent, item["id"], then, reason="another")["unknown_acts"] == []
    row = Act.objects.get()
    assert (row.state, row.result_reason) == (first, "the first")
    assert AuditEntry.objects.count() == written


def test_acts_of_another_node_and_unknown_ones_are_ignored_and_named(fleet, agent):
    fleet.post("/nodes", {"name": "n2"})
    other = enrolled(fleet, "n2")
    item = ask(fleet)
    assert tell(other, item["id"], "done")["unknown_acts"] == [item["id"]]
    assert tell(agent, "0" * 32, "done")["unknown_acts"] == ["0" * 32]
    assert Act.objects.get().state == "waiting"


def test_an_act_that_is_reported_twice_is_refused(fleet, agent):
    item = ask(fleet)
    twice = [ActReport(item["id"], state, 1) for state in ("done", "failed")]
    with pytest.raises(Refused) as refused:
        take_report("n1", NodeReport(version="1", acts=twice), timezone.now())
    assert [(p.path, p.rule) for p in refused.value.problems] == [("/acts", "unique")]
    assert Act.objects.get().state == "waiting"


@pytest.mark.parametrize("at_ms", [0, 2**53 - 1])
def test_a_nodes_wrong_clock_puts_no_end_before_the_act_or_into_the_future(fleet, agent, at_ms):
    item = ask(fleet)
    tell(agent, item["id"], "done", at_ms=at_ms)
    row = Act.objects.get()
    assert row.issued_at <= row.state_at <= timezone.now()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"action": "dance"}, ("/action", "unknown_action")),
        ({"action": "release_gpus", "arguments": {}}, ("/engine", "wrong_subject")),
        ({"engine": None, "node": "n1"}, ("/engine", "wrong_subject")),
        ({"action": "load_model", "arguments": {"model": "m"}}, ("/engine", "wrong_kind")),
        ({"arguments": {"level": 3}}, ("/arguments/level", "type")),
        ({"arguments": {"depth": 1}}, ("/arguments/depth", "unknown")),
        ({"arguments": {"level": 1.5}}, ("/arguments/level", "canonical")),
        ({"arguments": {"level": "\ud800"}}, ("/arguments/level", "canonical")),
        ({"engine": "nobody"}, ("/engine", "reference")),
        ({"engine": None, "node": "nobody"}, ("/node", "reference")),
        ({"node": "n1"}, ("/", "one_of")),
        ({"engine": None}, ("/", "one_of")),
        ({"expires_in_seconds": 604_801}, ("/expires_in_seconds", "less_than_equal")),
        ({"expires_in_seconds": 0}, ("/expires_in_seconds", "greater_than_equal")),
        ({"surplus": 1}, ("/surplus", "unknown")),
    ],
)
def test_what_no_agent_could_do_is_refused_by_name(fleet, agent, changes, problem):
    assert problem in rules(fleet.post("/acts", {**SLEEP, **changes})).items()
    assert not Act.objects.exists()


def test_an_engine_without_a_node_and_a_node_without_an_agent_are_refused_by_name(fleet):
    assert rules(fleet.post("/acts", SLEEP)) == {"/engine": "no_agent"}
    assert rules(fleet.post("/acts", {"action": "release_gpus", "node": "n1"})) == {"/node": "no_agent"}
    fleet.patch("/engines/e1", {"node": None})
    assert rules(fleet.post("/acts", SLEEP)) == {"/engine": "no_node"}


def test_every_problem_is_named_at_once(fleet):
    assert problem_paths(fleet.post("/acts", {**SLEEP, "arguments": {"level": 9}})) == {"/engine", "/arguments/level"}


def test_a_node_has_so_many_open_acts_at_most(fleet, agent):
    for _ in range(acts.OPEN_MAX):
        last = ask(fleet)
    assert rules(fleet.post("/acts", SLEEP)) == {"/engine": "too_many"}
    fleet.post(f"/acts/{last['id']}/cancel")
    ask(fleet)


def test_a_dry_run_shows_what_would_be_told_and_keeps_nothing(fleet, agent):
    answer = fleet.post("/acts?dry_run=true", SLEEP).json()
    (told,) = answer["patch"]["acts"].values()
    assert (told["action"], told["node"]) == ("sleep", "n1")
    assert not Act.objects.exists()


def test_a_drain_cordons_its_engine_in_the_same_write_and_leaves_it_so(fleet, agent):
    answer = fleet.post("/acts", {"action": "drain", "engine": "e1"}).json()
    assert answer["patch"]["engines"] == {"e1": {"cordoned": True}}
    assert list(answer["patch"]["acts"]) == [answer["item"]["id"]]
    tell(agent, answer["item"]["id"], "done")
    assert fleet.get("/engines/e1").json()["cordoned"] is True


def test_one_that_waits_can_be_cancelled_again_and_again_and_no_other(fleet, agent):
    item = ask(fleet)
    for _ in range(2):
        answer = fleet.post(f"/acts/{item['id']}/cancel")
        assert (answer.status_code, answer.json()["item"]["state"]) == (200, "cancelled")
    assert sections["acts"].compile(item["id"]) is None
    for state in ("expired", "refused"):
        tell(agent, item["id"], state)
        assert Act.objects.get().state == "cancelled"
    begun = ask(fleet)
    for state in ("running", "done"):
        tell(agent, begun["id"], state)
        refused = fleet.post(f"/acts/{begun['id']}/cancel")
        assert (refused.status_code, refused.json()["code"]) == (409, "not_waiting")


@pytest.mark.parametrize("end", ["done", "failed"])
def test_one_that_was_done_though_it_was_cancelled_is_shown_as_what_it_became(fleet, agent, end):
    item = ask(fleet)
    cancelled = fleet.post(f"/acts/{item['id']}/cancel")
    assert cancelled["ETag"] == fleet.get(f"/acts/{item['id']}")["ETag"]
    tell(agent, item["id"], end)
    shown = fleet.get(f"/acts/{item['id']}")
    assert (shown.json()["state"], shown["ETag"] == cancelled["ETag"]) == (end, False)
    tell(agent, item["id"], "failed")
    assert Act.objects.get().state == end


@pytest.mark.parametrize("end", ["done", "failed", "refused"])
def test_one_that_its_agent_had_begun_when_it_was_cancelled_runs_until_its_end(fleet, agent, end):
    item = ask(fleet)
    fleet.post(f"/acts/{item['id']}/cancel")
    tell(agent, item["id"], "running", progress_permille=300)
    shown = fleet.get(f"/acts/{item['id']}").json()
    assert (shown["state"], shown["detail"]) == ("running", "its agent had begun it when it was cancelled")
    assert sections["acts"].compile(item["id"]) is not None, "its agent keeps its end until it is taken"
    assert fleet.post(f"/acts/{item['id']}/cancel").json()["code"] == "not_waiting"
    assert "act " in fleet.delete("/engines/e1").json()["detail"]
    tell(agent, item["id"], end)
    assert Act.objects.get().state == end
    assert sections["acts"].compile(item["id"]) is None


def test_of_several_those_are_taken_back_that_no_agent_has_begun(fleet, agent):
    begun, waits = ask(fleet), ask(fleet)
    tell(agent, begun["id"], "running")
    with unit_of_work(SYSTEM, "a person took it in hand") as unit:
        acts.cancel_waiting(unit, [begun["id"], waits["id"], "0" * 32])
    assert dict(Act.objects.values_list("act_id", "state")) == {begun["id"]: "running", waits["id"]: "cancelled"}
    assert sections["acts"].compile(waits["id"]) is None


@pytest.mark.parametrize("name", ["nobody", "0" * 32, "%00"])
def test_an_unknown_act_is_not_found(fleet, name):
    assert fleet.get(f"/acts/{name}").status_code == 404
    assert fleet.post(f"/acts/{name}/cancel").status_code == 404


def test_the_list_has_the_newest_first_and_pages_and_filters(fleet, agent):
    fleet.post("/engines", {**ENGINE, "name": "e2"})
    made = [ask(fleet, {**SLEEP, "engine": name})["id"] for name in ("e1", "e2", "e1")]
    tell(agent, made[0], "done")
    first = fleet.get("/acts?limit=2").json()
    assert [item["id"] for item in first["items"]] == [made[2], made[1]]
    assert [item["id"] for item in fleet.get(f"/acts?after={first['next']}").json()["items"]] == [made[0]]
    for query, expected in (("engine=e2", [made[1]]), ("state=done", [made[0]]), ("node=n1&engine=e1", made[::-2])):
        assert [item["id"] for item in fleet.get(f"/acts?{query}").json()["items"]] == expected
    assert fleet.get("/acts?node=nobody").status_code == 404
    assert fleet.get("/acts?engine=nobody").status_code == 404
    assert fleet.get("/acts?state=asleep").status_code == 422


def test_an_act_that_no_agent_tells_the_end_of_expires(fleet, agent):
    item = ask(fleet)
    tell(agent, item["id"], "running")
    assert expire_acts() == 0
    untold = timedelta(seconds=settings_rows.ACT_UNTOLD_SECONDS.read())
    Act.objects.update(expires_at=timezone.now() - untold)
    assert expire_acts() == 1
    row = Act.objects.get()
    assert (row.state, row.result_reason) == ("expired", "untold")
    assert sections["acts"].compile(item["id"]) is None
    assert AuditEntry.objects.latest("pk").actor_kind == "system"


@pytest.mark.parametrize(("arguments", "hours"), [({}, 4), ({"limit_seconds": 7200}, 2)])
def test_one_that_may_take_hours_has_them_before_it_expires(fleet, agent, arguments, hours):
    manifest = {"manifest": "0" * 64, "folder": "/models/m"}
    item = ask(fleet, {"action": "fetch_model", "node": "n1", "arguments": {**manifest, **arguments}})
    tell(agent, item["id"], "running")
    untold = timedelta(seconds=settings_rows.ACT_UNTOLD_SECONDS.read()) + timedelta(hours=hours - 1)
    Act.objects.update(expires_at=timezone.now() - untold + timedelta(minutes=1))
    assert expire_acts() == 0
    Act.objects.update(expires_at=timezone.now() - untold)
    assert expire_acts() == 1


def test_a_node_whose_agent_is_revoked_gets_rid_of_its_acts_and_then_goes(fleet, agent):
    ask(fleet)
    assert "act " in fleet.delete("/engines/e1").json()["detail"]
    fleet.post(f"/targets/{Target.objects.get().pk}/revoke")
    refused = fleet.delete("/nodes/n1")
    assert (refused.status_code, refused.json()["code"]) == (409, "in_use")
    assert expire_acts() == 1
    assert Act.objects.get().result_reason == "no_agent"
    assert fleet.delete("/engines/e1").status_code == 200
    assert fleet.delete("/nodes/n1").status_code == 200


def test_what_ended_long_ago_is_forgotten_and_what_is_open_never(fleet, agent):
    ended, waits = ask(fleet), ask(fleet)
    tell(agent, ended["id"], "done")
    Act.objects.update(state_at=timezone.now() - timedelta(days=settings_rows.ACTS_KEEP_DAYS.read() + 1))
    assert prune_acts() == 1
    assert [row.act_id for row in Act.objects.all()] == [waits["id"]]


def test_every_action_has_a_place_on_the_rest_api(fleet, agent):
    """What wire/acts.py adds can be asked for without a change here."""
    kinds = {name: sorted(action.kinds) for name, action in ACTIONS.items()}
    for number, kind in enumerate(sorted({kind for able in kinds.values() for kind in able})):
        fleet.post("/engines", {**ENGINE, "name": f"k{number}", "kind": kind})
    engines = {item["kind"]: item["name"] for item in fleet.get("/engines").json()["items"]}
    arguments = {
        "load_lora": {"adapter": "a", "path": "/adapters/a"},
        "unload_lora": {"adapter": "a"},
        "load_model": {"model": "m"},
        "unload_model": {"model": "m"},
        "fetch_model": {"manifest": "a" * 64, "folder": "/models/llama"},
        "check_model": {"manifest": "a" * 64, "folder": "/models/llama"},
        "reset_gpu": {"gpu": "GPU-0a1b"},
        "restart": {"arguments": {"max-num-seqs": 64, "enable-lora": True, "gpu-memory-utilization": "0.9"}},
    }
    for name, able in kinds.items():
        subject = {"engine": engines[able[0]]} if able else {"node": "n1"}
        ask(fleet, {"action": name, **subject, "arguments": arguments.get(name, {})})


def test_states_are_those_that_agents_tell_and_two_of_our_own():
    told = set(get_args(get_type_hints(ActReport)["state"]))
    assert set(ActState.values) == told | {"waiting", "cancelled"}
    assert set(get_args(get_args(State)[0])) == {"", *ActState.values}


@two_writers
@pytest.mark.django_db(transaction=True)
def test_a_report_and_a_new_act_do_not_wait_for_each_other_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {name: value for name, value in ENGINE.items() if name != "name"}
    with unit_of_work(SYSTEM, "a fleet") as unit:
        MODELS.create(unit, MODEL, {"max_context_tokens": 8192})
        POOLS.create(unit, "short", {"model": MODEL})
        NODES.create(unit, "n1", {})
        ENGINES.create(unit, "e1", fields)
    Target.objects.create(
        kind="node", name="n1", version="1", protocol=1, token_hash="0" * 64, token_expires_at=timezone.now()
    )
    meet, lock, referenced = meeting(), NODES.lock, ENGINES.referenced
    # The report holds its node, and the act its engine, when they meet.
    monkeypatch.setattr(NODES, "lock", lambda name: (lock(name), meet())[0])
    monkeypatch.setattr(ENGINES, "referenced", lambda *asked: (meet(), referenced(*asked))[1])

    def create() -> None:
        with unit_of_work(SYSTEM, "make room") as unit:
            acts.create(unit, {"action": "drain", "engine": "e1"})

    report = NodeReport(version="1", engines=[])
    assert at_once(lambda: take_report("n1", report, timezone.now()), create) == [None, None]
    assert Act.objects.get().state == "waiting"


def test_how_far_an_act_has_come_is_shown_while_it_runs(fleet, agent):
    check = {"action": "check_model", "node": "n1", "arguments": {"manifest": "a" * 64, "folder": "/models/llama"}}
    item = ask(fleet, check)
    assert item["progress_permille"] is None
    tell(agent, item["id"], "running", progress_permille=420)
    assert fleet.get(f"/acts/{item['id']}").json()["progress_permille"] == 420
    tell(agent, item["id"], "done")
    assert fleet.get(f"/acts/{item['id']}").json()["progress_permille"] is None


def test_an_engine_that_takes_requests_is_not_asked_to_stop(fleet, agent):
    assert rules(fleet.post("/acts", {"action": "stop", "engine": "e1"})) == {"/engine": "not_cordoned"}
    fleet.post("/engines/e1/cordon")
    assert ask(fleet, {"action": "stop", "engine": "e1"})["state"] == "waiting"
