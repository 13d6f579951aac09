"""A rollout from look to look: it goes on, is taken back, and is never half of anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.rollouts import machine
from controlplane.rollouts.observed import ActFacts
from tests.controlplane.rollouts.world import HOLDER, WARM_UP, World, route

ROUTES = [
    route("all", {"old": 700, "other": 300}, {"other": 1}),
    route("second", {"other": 1000}, {"old": 3}),
    route("small", {"other": 1000}, cascade={"pool": "old", "escalate_on": ["length"]}),
]


def holds_together(world: World) -> None:
    """What must be so after every write, whatever happens."""
    for each in world.routes.values():
        assert sum((each["pools"] or {}).values()) == 1000
        for pool in ("old", "new"):
            leads = (each["pools"] or {}).get(pool, 0) or (each["cascade"] or {}).get("pool") == pool
            assert not leads or world.serving(pool), f"{each} leads to {pool}, which has no engine in service"


def test_traffic_goes_over_in_steps_and_the_old_side_is_put_away() -> None:
    world = World.red_black(4, 2, ROUTES)
    seen: list[tuple[int, int, int]] = []
    while world.rollout.state == "running":
        world.look()
        holds_together(world)
        world.pass_time(2)
        now = (world.routes["all"]["pools"].get("new", 0), len(world.serving("old")), len(world.serving("new")))
        if not seen or seen[-1] != now:
            seen.append(now)
    assert world.rollout.state == "done"
    assert seen == [(0, 4, 0), (35, 4, 1), (350, 2, 1), (700, 0, 2)]
    assert world.routes == {
        "all": route("all", {"other": 300, "new": 700}, {"other": 1}),
        "second": route("second", {"other": 1000}, {"new": 3}),
        "small": route("small", {"other": 1000}, cascade={"pool": "new", "escalate_on": ["length"]}),
    }
    assert [act for act in world.asked if act[1] == "stop"] == [(f"old-{number}", "stop") for number in range(4)]


def test_while_traffic_moves_each_side_takes_what_the_other_cannot() -> None:
    world = World.red_black(2, 2, ROUTES)
    world.run_to("shift", share_permille=500)
    assert world.routes["all"]["fallbacks"] == {"other": 1, "old": 2, "new": 2}


@st.composite
def events(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """What may happen between two looks."""
    kinds = st.sampled_from(
        ["look", "look", "look", "killed", "time", "pending", "applied", "cordon", "dies", "breach"]
    )
    return [(draw(kinds), draw(st.integers(0, 5))) for _ in range(draw(st.integers(1, 120)))]


@given(st.integers(1, 6), st.integers(1, 6), events())
def test_no_side_is_ever_without_an_engine_and_the_way_back_leads_to_what_was(
    old: int, new: int, happens: list[tuple[str, Any]]
) -> None:
    world = World.red_black(old, new, ROUTES)
    before = world.configuration
    for what, number in happens:
        if world.rollout.state not in ("running", "returning"):
            break
        if what in ("look", "killed"):
            world.look(killed=what == "killed")
        elif what == "time":
            world.pass_time(number * 5)
        elif what in ("pending", "applied"):
            world.pending = ("gateway/gw-1",) if what == "pending" else ()
        elif what == "cordon":
            world.set(f"old-{number % old}", cordoned=True)
        elif what == "dies":
            world.set(f"new-{number % new}", up=False)
        else:
            world.judgements = {"ttft_p95": "broken"}
        holds_together(world)
    world.pending = ()
    if world.rollout.current is not None and world.rollout.current.kind == machine.RETIRE:
        # Nobody is put away while the new side is dead.
        for number in range(new):
            world.set(f"new-{number}", up=True)
    while world.rollout.state in ("running", "returning"):
        world.look()
        holds_together(world)
        world.pass_time(5)
    if world.rollout.state == "returned":
        assert world.configuration == before
    else:
        assert world.rollout.state == "done"
        assert not any("old" in str(each) for each in world.routes.values())


STEPS = [("shift", 0), ("shift", 50), ("shift", 500), ("shift", 1000), ("keep_warm", None)]


@pytest.mark.parametrize(("kind", "share"), STEPS[1:])
def test_a_breach_at_any_step_takes_all_back_in_one_write(kind: str, share: int | None) -> None:
    world = World.red_black(3, 3, ROUTES)
    before = world.configuration
    world.run_to(kind, **({} if share is None else {"share_permille": share}))
    assert world.configuration != before
    world.judgements = {"error_ratio": "broken"}
    decision = world.look()
    assert (decision.state, decision.said) == ("returning", "not healthy: error_ratio")
    assert world.configuration == before
    world.run()
    assert world.rollout.state == "returned"
    assert [act for act in world.asked if act[1] == "drain"] == [(f"new-{number}", "drain") for number in range(3)]
    assert [step.state for step in world.rollout.steps if step.kind == "retire"] == ["skipped"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"up": False}, "the new side lost new-0: it does not answer"),
        ({"silent": True}, "the new side lost new-0: its node is not heard of"),
        ({"condition": "hung"}, "the new side lost new-0: it is hung"),
        ({"cordoned": True}, "no engine of the new side takes work any more"),
    ],
)
def test_a_new_side_that_dies_half_way_is_taken_back(change: dict[str, Any], why: str) -> None:
    world = World.red_black(2, 2, ROUTES)
    before = world.configuration
    world.run_to("shift", share_permille=50)
    world.set("new-0", **change)
    assert world.look().said == why
    assert world.configuration == before


def test_a_gateway_that_refuses_takes_it_back() -> None:
    world = World.red_black(2, 2, ROUTES)
    world.run_to("shift", share_permille=50)
    world.refusing = ("gateway/gw-1",)
    assert world.look().said == "gateway/gw-1 refuses the configuration"


def test_only_the_third_look_in_a_row_without_an_answer_takes_it_back() -> None:
    world = World.red_black(2, 2, ROUTES)
    world.run_to("shift", share_permille=50)
    for answers in (False, False, True, False, False):
        world.judgements = {"ttft_p95": "holds" if answers else "unanswered"}
        assert world.look().state == "running"
        world.rollout = _looked(world, answers)
    assert world.look().said == "3 times in a row there was no answer to ttft_p95"


def _looked(world: World, answers: bool) -> Any:
    from dataclasses import replace

    return replace(world.rollout, unanswered_looks=0 if answers else world.rollout.unanswered_looks)


def test_a_breach_takes_a_paused_one_back_too() -> None:
    from dataclasses import replace

    world = World.red_black(2, 2, ROUTES)
    world.run_to("shift", share_permille=50)
    world.rollout = replace(world.rollout, state="paused")
    world.pass_time(1000)
    assert not world.look().is_write
    world.judgements = {"ttft_p95": "broken"}
    assert world.look().state == "returning"


def test_what_people_changed_meanwhile_stops_it_by_name_and_stays() -> None:
    world = World.red_black(2, 2, ROUTES)
    world.run_to("shift", share_permille=50)
    world.routes["all"]["pools"] = {"old": 500, "other": 500}
    decision = world.look()
    assert (decision.state, decision.said[:45]) == ("paused", "somebody changed route 'all' meanwhile; resum")
    world.judgements = {"ttft_p95": "broken"}
    world.look()
    assert world.routes["all"]["pools"] == {"old": 500, "other": 500}


def test_a_persons_cordon_wins_over_the_choice_of_engines() -> None:
    world = World.red_black(4, 2, ROUTES)
    world.set("old-0", cordoned=True)
    world.run_to("shift", share_permille=500)
    assert world.serving("old") == ["old-1", "old-2"]


@pytest.mark.parametrize(
    ("go_on", "state", "said"),
    [
        (False, "paused", "too few requests to judge ttft_p95; resume goes on without"),
        (True, "running", "went on without ttft_p95: too few requests"),
    ],
)
def test_too_few_requests_are_waited_for_but_not_for_ever(go_on: bool, state: str, said: str) -> None:
    world = World.red_black(2, 2, ROUTES, watch={"go_on_unjudged": go_on})
    world.judgements = {"ttft_p95": "too_few"}
    world.run_to("shift", share_permille=50)
    world.pass_time(12)
    assert world.look().said == "too few requests yet to judge ttft_p95"
    world.pass_time(30)
    decision = world.look()
    assert (decision.state, decision.said) == (state, said)


def test_what_is_in_the_way_ends_it_before_anything_moved() -> None:
    world = World.red_black(2, 2, ROUTES)
    before = world.configuration
    world.gate = ("triton-vllm: known bad",)
    world.run()
    assert (world.rollout.state, world.configuration) == ("returned", before)
    assert world.asked == [("new-0", "drain"), ("new-1", "drain")]


def test_engines_that_never_come_up_end_it_at_the_limit() -> None:
    world = World.red_black(2, 2, ROUTES)
    world.set("new-0", up=False, allowed=frozenset())
    world.look()
    world.run()
    failed = next(step for step in world.rollout.steps if step.state == "failed")
    assert (failed.kind, world.rollout.state) == ("start", "returned")


def test_engines_that_do_not_run_are_started_and_those_that_sleep_are_woken() -> None:
    world = World.red_black(1, 3, ROUTES)
    world.set("new-0", up=False)
    world.set("new-1", condition="sleeping")
    world.run_to("start")
    assert world.asked == [("new-0", "start"), ("new-1", "wake")]


def test_nobody_goes_back_to_a_side_that_cannot_serve_either() -> None:
    world = World.red_black(2, 2, ROUTES)
    world.run_to("shift", share_permille=500)
    stood = world.configuration
    for name in world.engines:
        world.set(name, silent=True)
    decision = world.look()
    assert (decision.state, "the old side cannot serve either" in decision.said) == ("running", True)
    assert world.configuration == stood
    world.set("old-0", silent=False)
    assert world.look().state == "returning"


def test_between_two_steps_it_is_watched_as_well_while_it_is_paused() -> None:
    world = World.red_black(2, 2, ROUTES)
    world.reach("shift", share_permille=1000)
    world.rollout = replace(world.rollout, state="paused")
    assert world.rollout.current is not None
    assert world.rollout.current.state == "waiting"
    world.judgements = {"ttft_p95": "broken"}
    assert world.look().state == "returning"


def test_an_engine_is_warmed_up_by_one_act_after_the_other_until_one_fails() -> None:
    prompts = [f"prompt {number}" for number in range(3)]
    world = World.red_black(1, 2, ROUTES, warm_up={**WARM_UP, "prompts": prompts})
    world.endings["warm_up"] = ActFacts("running")
    world.reach("warm_up")
    for _ in range(5):
        world.look()
    assert world.asked == [("new-0", "warm_up"), ("new-1", "warm_up")]
    world.acts = dict.fromkeys(world.acts, ActFacts("done"))
    world.look()
    assert len(world.asked) == 4
    first, *others = list(world.acts)[2:]
    world.acts[first] = ActFacts("failed", "timeout")
    world.look()
    assert len(world.asked) == 4
    world.acts |= dict.fromkeys(others, ActFacts("done"))
    assert world.look().said == "could not warm up: new-0 failed: timeout"


def test_what_cannot_be_retired_is_no_reason_to_go_back() -> None:
    world = World.red_black(1, 1, ROUTES)
    world.reach("retire")
    decision = machine.refused(world.rollout, world.facts(), "too many acts")
    assert (decision.state, decision.is_write) == ("running", False)


def test_an_old_engine_that_came_back_into_service_is_taken_out_before_it_is_put_away() -> None:
    world = World.red_black(1, 1, ROUTES)
    world.reach("retire")
    world.set("old-0", held_out_by="")
    world.run()
    assert (world.rollout.state, world.engines["old-0"].held_out_by) == ("done", HOLDER)


def test_a_moment_without_an_answer_is_none_to_go_on_at() -> None:
    world = World.red_black(2, 2, ROUTES)
    world.run_to("shift", share_permille=1000)
    world.pass_time(10)
    world.judgements = {"ttft_p95": "unanswered"}
    assert world.look().said == "no answer to ttft_p95"
    world.judgements = {"ttft_p95": "holds"}
    world.run_to("keep_warm")
    world.pass_time(20)
    world.judgements = {"ttft_p95": "unanswered"}
    assert world.look().said == "no answer to ttft_p95"
    world.judgements = {"ttft_p95": "holds"}
    assert world.look().steps[0].state == "done"


def test_no_more_traffic_goes_to_a_side_whose_agents_have_not_told_of_it_since() -> None:
    world = World.red_black(2, 2, ROUTES)
    world.run_to("shift", share_permille=500)
    told_at = world.now
    world.pass_time(10)
    world.set("new-0", reported_at=told_at)
    assert world.look().said == "waits for agents to tell of new-0"
    world.set("new-0", reported_at=world.now)
    assert world.look().steps[0].state == "done"


@pytest.mark.parametrize(("kind", "seconds", "share"), [("shift", 10, {"share_permille": 50}), ("keep_warm", 20, {})])
def test_a_time_in_which_nobody_looked_is_none_that_was_watched(kind: str, seconds: int, share: dict[str, int]) -> None:
    world = World.red_black(2, 2, ROUTES)
    world.run_to(kind, **share)
    world.pass_time(1000)
    decision = machine.decide(world.rollout, replace(world.facts(), unwatched=True), world.now)
    world.write(decision)
    assert decision.steps[0].state == "running"
    world.pass_time(seconds - 1)
    assert world.look().steps[0].state == "running"
    world.pass_time(1)
    assert world.look().steps[0].state == "done"


@pytest.mark.parametrize("change", [{"up": False}, {"silent": True}, {"cordoned": True}])
def test_an_old_side_is_not_put_away_while_nobody_of_the_new_one_serves(change: dict[str, Any]) -> None:
    world = World.red_black(2, 2, ROUTES)
    world.reach("retire")
    for name in world.rollout.new_engines:
        world.set(name, **change)
    asked = len(world.asked)
    for _ in range(5):
        world.look()
        world.pass_time(600)
    assert world.rollout.state == "running"
    assert "so the old one is not put away" in world.look().said
    assert len(world.asked) == asked
    world.set("new-0", up=True, silent=False, cordoned=False)
    world.run()
    assert world.rollout.state == "done"


def test_an_old_engine_that_is_being_stopped_gets_no_request_back() -> None:
    world = World.red_black(2, 2, ROUTES)
    world.reach("retire")
    world.set("old-0", ending_by="stop")
    world.write(machine.taken_back(world.rollout, world.facts(), "by hand"))
    assert world.serving("old") == ["old-1"]
    world.look()
    assert world.rollout.state == "returning"
    world.set("old-0", ending_by="")
    world.run()
    assert (world.rollout.state, world.serving("old")) == ("returned", ["old-0", "old-1"])
