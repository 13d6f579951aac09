"""A repair takes no step too many, never passes one over, and gives nothing back that is not well."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.remediation.causes import ACTIONS, REPAIRS, action_for, cause_of
from controlplane.remediation.limits import too_often, trips
from controlplane.remediation.machine import ActSeen, Decision, EngineSeen, Seen, View, decide
from controlplane.remediation.models import OPEN_STATES, State
from gpu_agent.nvml.xids import XID_RULES

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
VERIFY = timedelta(minutes=2)
ALL_ACTS = frozenset({"drain", "stop", "start", "restart"})
# What may follow, beside the same state and what ends a repair without success.
FOLLOWS = {
    State.HELD: State.QUARANTINED,
    State.QUARANTINED: State.DRAINING,
    State.DRAINING: State.DRAINED,
    State.DRAINED: State.REMEDIATING,
    State.REMEDIATING: State.VERIFYING,
    State.VERIFYING: State.REMEDIATED,
}
WITHOUT_SUCCESS = {State.FAILED, State.ESCALATED, State.CANCELLED}


def engine(name: str = "e1", **changed: Any) -> EngineSeen:
    known: dict[str, Any] = {"name": name, "kind": "vllm", "up": True, "well": True, "allowed": ALL_ACTS}
    return EngineSeen(**(known | changed))


def seen(**changed: Any) -> Seen:
    known: dict[str, Any] = {
        "cordoned": True, "fires": True, "tripped": "", "engines": (engine(),), "acts": {}, "gpu_well": True,
        "node_allowed": frozenset({"reset_gpu", "reboot"}),
    }  # fmt: skip
    return Seen(**(known | changed))


def view(state: State = State.HELD, **changed: Any) -> View:
    known: dict[str, Any] = {
        "name": "remediation 1", "state": state, "action": "reset_gpu", "gpu": "GPU-1", "state_at": NOW, "asked": {},
        "well_since": None, "drain_limit": timedelta(minutes=15), "verify": VERIFY,
    }  # fmt: skip
    return View(**(known | changed))


def keys(decision: Decision) -> list[str]:
    return [act.key for act in decision.ask]


engines = st.lists(
    st.builds(
        EngineSeen,
        name=st.sampled_from(["e1", "e2", "e3"]),
        kind=st.sampled_from(["vllm", "ollama"]),
        up=st.booleans(),
        well=st.booleans(),
        allowed=st.frozensets(st.sampled_from(sorted(ALL_ACTS))),
        held_out_by=st.sampled_from(["", "remediation 1", "rollout 7"]),
    ),
    max_size=3,
    unique_by=lambda each: each.name,
).map(tuple)
acts = st.dictionaries(
    st.sampled_from(["drain e1", "stop e1", "repair", "start e1", "restart e1"]),
    st.builds(ActSeen, st.sampled_from(["waiting", "running", "done", "failed", "refused", "expired", "cancelled"])),
)
sights = st.builds(
    Seen,
    cordoned=st.booleans(),
    fires=st.booleans(),
    tripped=st.sampled_from(["", "too many"]),
    engines=engines,
    node_allowed=st.frozensets(st.sampled_from(["reset_gpu", "reboot"])),
    acts=acts,
    gpu_well=st.booleans(),
    policys_cordon=st.booleans(),
    heard=st.booleans(),
    struck_again=st.sampled_from(["", "XID 79"]),
    other_faults=st.sampled_from(["", "n1: XID 48"]),
)
views = st.builds(
    view,
    st.sampled_from(OPEN_STATES),
    action=st.sampled_from(sorted(REPAIRS)),
    asked=st.dictionaries(st.sampled_from(["drain e1", "stop e1", "repair", "start e1"]), st.just("id")),
    well_since=st.none()
    | st.datetimes(min_value=datetime(2026, 1, 1), max_value=datetime(2026, 1, 2)).map(
        lambda each: each.replace(tzinfo=UTC)
    ),
)


@given(views, sights)
def test_no_state_is_passed_over(looked_at: View, found: Seen) -> None:
    decision = decide(looked_at, found, NOW)
    assert decision.state in {looked_at.state, FOLLOWS[looked_at.state]} | WITHOUT_SUCCESS


@given(views, sights)
def test_a_node_takes_work_again_only_when_it_was_well_for_long_and_the_policy_cordoned_it(
    looked_at: View, found: Seen
) -> None:
    decision = decide(looked_at, found, NOW)
    if decision.uncordon:
        assert looked_at.state == State.VERIFYING
        assert found.gpu_well
        assert all(each.up and each.well for each in found.engines)
        assert looked_at.well_since is not None
        assert NOW - looked_at.well_since >= VERIFY
        assert found.policys_cordon
        assert found.heard
        assert not (found.struck_again)
        assert not (found.other_faults)


@given(views, sights)
def test_nothing_is_asked_of_a_node_that_takes_work_or_whose_fault_is_over(looked_at: View, found: Seen) -> None:
    decision = decide(looked_at, found, NOW)
    if not (found.cordoned and found.fires) or (found.tripped and looked_at.state == State.HELD):
        assert not decision.ask
        assert not decision.hold_out
        assert decision.state in (State.HELD, State.CANCELLED)


@given(views, sights)
def test_what_fails_leaves_engines_out_of_service(looked_at: View, found: Seen) -> None:
    decision = decide(looked_at, found, NOW)
    assert not (decision.state in (State.FAILED, State.ESCALATED) and decision.back)


def test_a_reset_goes_its_way() -> None:
    decision = decide(view(State.QUARANTINED), seen(), NOW)
    assert (decision.state, keys(decision), decision.hold_out) == (State.DRAINING, ["drain e1"], ["e1"])
    waits = decide(view(State.DRAINING), seen(acts={"drain e1": ActSeen("running")}), NOW)
    assert (waits.state, waits.said) == (State.DRAINING, "waits: drain e1")
    done = {"drain e1": ActSeen("done")}
    assert decide(view(State.DRAINING), seen(acts=done), NOW).state == State.DRAINED
    assert keys(decide(view(State.DRAINED), seen(acts=done), NOW)) == ["stop e1"]
    done["stop e1"] = ActSeen("done")
    asked = {"drain e1": "1", "stop e1": "2"}
    repair = decide(view(State.REMEDIATING, asked=asked), seen(acts=done), NOW)
    assert [(act.action, act.engine, act.arguments) for act in repair.ask] == [("reset_gpu", "", {"gpu": "GPU-1"})]
    done["repair"] = ActSeen("done")
    asked["repair"] = "3"
    assert keys(decide(view(State.REMEDIATING, asked=asked), seen(acts=done), NOW)) == ["start e1"]
    done["start e1"] = ActSeen("done")
    asked["start e1"] = "4"
    assert decide(view(State.REMEDIATING, asked=asked), seen(acts=done), NOW).state == State.VERIFYING


def test_whatever_may_hold_the_gpu_is_stopped_before_it_is_reset() -> None:
    ill = (engine("e1", up=False), engine("e2", well=False), engine("e3"))
    assert keys(decide(view(State.DRAINED), seen(engines=ill), NOW)) == ["stop e1", "stop e2", "stop e3"]


def test_engines_that_hang_or_are_down_are_not_waited_for_to_drain() -> None:
    ill = (engine("e1", up=False), engine("e2", well=False), engine("e3", kind="ollama"))
    decision = decide(view(State.QUARANTINED), seen(engines=ill), NOW)
    assert (decision.state, keys(decision)) == (State.DRAINING, [])


@pytest.mark.parametrize(
    ("changed", "state", "said"),
    [
        ({"node_allowed": frozenset()}, State.FAILED, "the node's policy does not allow reset_gpu"),
        ({"engines": (engine(allowed=frozenset({"drain"})),)}, State.FAILED, "stop of e1, start of e1"),
        ({"engines": (engine(held_out_by="rollout 3"),)}, State.QUARANTINED, "waits for what holds out e1 (rollout 3)"),
        ({"cordoned": False}, State.CANCELLED, "a person's hand goes before"),
        ({"fires": False}, State.CANCELLED, "the fault has ended"),
    ],
)
def test_what_keeps_a_repair_from_beginning_is_said(changed: dict[str, Any], state: State, said: str) -> None:
    decision = decide(view(State.QUARANTINED), seen(**changed), NOW)
    assert decision.state == state
    assert said in decision.said


def test_what_is_not_well_in_time_is_a_persons() -> None:
    ill = seen(gpu_well=False)
    assert decide(view(State.VERIFYING), ill, NOW).said == "waits for GPU GPU-1 to be well"
    late = view(State.VERIFYING, state_at=NOW - timedelta(hours=1))
    assert decide(late, ill, NOW).state == State.FAILED
    assert decide(view(State.VERIFYING), seen(struck_again="XID 79"), NOW).state == State.ESCALATED


def test_well_means_well_all_the_time() -> None:
    first = decide(view(State.VERIFYING), seen(), NOW)
    assert (first.state, first.well_since) == (State.VERIFYING, NOW)
    ill = decide(view(State.VERIFYING, well_since=NOW), seen(gpu_well=False), NOW)
    assert ill.well_since is None
    assert decide(view(State.VERIFYING, well_since=NOW), seen(), NOW + VERIFY).uncordon


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 1000), st.integers(0, 5))
def test_the_breaker_trips_beyond_the_share_and_not_below_the_minimum(
    others: int, nodes: int, permille: int, least: int
) -> None:
    tripped = trips(others=others, nodes=nodes, max_nodes_permille=permille, min_nodes=least) is not None
    assert tripped == (others >= max(least, nodes * permille // 1000))


def test_what_comes_again_and_again_is_a_persons() -> None:
    limits = {"max_of_a_node": 5, "max_of_a_fault": 3}
    assert too_often(of_node=4, of_fault=2, **limits) is None
    assert "this node was repaired 5 times" in (too_often(of_node=5, of_fault=0, **limits) or "")
    assert "the same fault came 3 times" in (too_often(of_node=4, of_fault=3, **limits) or "")


def test_the_table_knows_the_faults_that_need_a_repair() -> None:
    assert cause_of({"alertname": "GpuXid", "xid": "79"}) == "xid 79"
    assert cause_of({"alertname": "GpuLost", "gpu": "GPU-1"}) == "GpuLost"
    assert [action_for(cause, {}) for cause in ("xid 79", "xid 95", "xid 45", "GpuLost")] == [
        "reboot", "reset_gpu", "none", "reboot",
    ]  # fmt: skip
    assert action_for("xid 79", {"xid 79": "support"}) == "support"
    assert set(ACTIONS.values()) >= REPAIRS


def test_no_fault_that_the_agents_table_calls_critical_is_left_without_an_action() -> None:
    critical = [number for number, rule in XID_RULES.items() if rule.severity == "critical"]
    assert 149 in critical
    assert [number for number in critical if action_for(f"xid {number}", {}) == "none"] == []
    mended = [cause for cause, action in ACTIONS.items() if action in REPAIRS and cause.startswith("xid ")]
    # What the documentation says of the others.
    assert [cause for cause in mended if int(cause.removeprefix("xid ")) not in critical] == ["xid 94"]
