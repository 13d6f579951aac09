"""An engine from look to look: faults that users of engines reported, and what is told of each."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_agent.engines.course import Course
from gpu_agent.engines.look import Look
from wire.engine_pages.numbers import Reading
from wire.messages import EngineReport
from wire.snapshot import NodeEngine

ENGINE = NodeEngine("http://127.0.0.1:8000", "vllm", "short", "llama")
SUBJECT = "engine e1 (vllm, pool short)"


def readings(running=1, tokens=5, iterations=5, preemptions=0, kv=0.5, **more):
    numbers = {
        "requests_running": running,
        "generation_tokens_total": tokens,
        "iterations_total": iterations,
        "preemptions_total": preemptions,
        "kv_cache_usage_ratio": kv,
        **more,
    }
    return [Reading(name, (), value) for name, value in numbers.items()]


def up(numbers=(), ranks=None, at_ms=0):
    return Look(EngineReport("e1", "up"), at_ms, list(numbers), ranks or {})


def down(condition="dead", refused=False, said="/health: answered 503"):
    return Look(EngineReport("e1", "down", error=said, condition=condition), 0, refused=refused)


class Followed:
    """A course with a clock: each look so many seconds after the last."""

    def __init__(self):
        self.course, self.now_seconds, self.told = Course(60), 0, []

    def look(self, look, passed_seconds=10, paused=None):
        self.now_seconds += passed_seconds
        found, told = self.course.follow(ENGINE, look, paused, self.now_seconds)
        self.told += told
        return found.report

    @property
    def kinds(self):
        return [one.kind for one in self.told]


@pytest.fixture
def followed():
    return Followed()


def test_a_core_that_died_or_was_stopped_behind_a_healthy_page_is_hung(followed):
    conditions = [followed.look(up(readings(running=1))).condition for _ in range(8)]
    assert conditions == ["ok"] * 6 + ["hung"] * 2
    assert followed.kinds == ["engine_hung"]


def test_a_machine_that_was_suspended_with_its_engines_calls_none_of_them_hung(followed):
    """What ran before goes on after: the first look sees the numbers of the last one."""
    tokens_and_seconds = [(5, 10), (6, 10), (6, 3600), (7, 10), (7, 86_400), (8, 10)]
    assert [followed.look(up(readings(tokens=each)), passed).condition for each, passed in tokens_and_seconds] == (
        ["ok"] * len(tokens_and_seconds)
    )
    assert followed.told == []


def test_preemption_thrash_without_a_token_is_a_hang_though_steps_and_cache_move(followed):
    looks = [readings(running=8, preemptions=n, iterations=n, kv=0.9 + n / 100) for n in range(8)]
    assert [followed.look(up(each)).condition for each in looks][-2:] == ["hung", "hung"]
    assert [(one.kind, one.severity) for one in followed.told] == [("engine_hung", "critical")]


def test_preemptions_beside_which_tokens_are_made_are_work(followed):
    looks = [readings(running=8, preemptions=n, tokens=n) for n in range(20)]
    assert {followed.look(up(each)).condition for each in looks} == {"ok"}


def test_a_long_prefill_that_is_preempted_now_and_then_is_work(followed):
    looks = [readings(preemptions=n // 4, iterations=n, kv=n / 100) for n in range(40)]
    assert {followed.look(up(each)).condition for each in looks} == {"ok"}


def test_a_pause_that_keeps_its_requests_is_a_pause_though_health_is_well_and_nothing_waits(followed):
    frozen = readings(running=2, requests_waiting=0)
    assert [followed.look(up(frozen), paused=True).condition for _ in range(10)] == ["paused"] * 10
    assert followed.kinds == ["engine_paused"]
    assert [followed.look(up(frozen), paused=False).condition for _ in range(8)][5:] == ["ok", "hung", "hung"]
    assert followed.kinds == ["engine_paused", "engine_up", "engine_hung"]


def test_a_sleeping_engine_is_asleep_though_it_says_that_it_is_paused(followed):
    assert followed.look(up(readings(running=0, awake=0)), paused=True).condition == "sleeping"
    assert followed.look(up(readings(running=0, awake=1)), paused=False).condition == "ok"
    assert [(one.kind, one.severity) for one in followed.told] == [("engine_sleeping", "info"), ("engine_up", "info")]


def test_one_rank_that_hangs_while_the_others_go_on_is_told_with_its_number(followed):
    for n in range(7):
        ranks = {"0": readings(tokens=n), "1": readings(running=3, tokens=0)}
        report = followed.look(up(readings(running=4, tokens=n), ranks))
    assert report.condition == "hung"
    assert report.error == "hung: rank 1: requests running 3, nothing moved since 1970-01-01 00:00:00 UTC"
    ranks = {"0": readings(tokens=9), "1": readings(running=3, tokens=1)}
    assert followed.look(up(readings(running=4, tokens=10), ranks)).condition == "ok"


def test_many_ranks_that_hang_are_counted_beyond_the_first():
    followed = Followed()
    ranks = {str(rank): readings() for rank in range(10, 74)}
    for _ in range(7):
        report = followed.look(up(readings(), ranks))
    assert report.error.count("rank ") == 3
    assert report.error.endswith("; and 61 ranks more")


def test_ranks_that_cannot_tell_leave_it_to_the_engine_as_a_whole(followed):
    ranks = {"0": [Reading("requests_running", (), 1)], "1": [Reading("requests_running", (), 0)]}
    for n in range(20):
        assert followed.look(up(readings(tokens=n), ranks)).condition == "ok"
    assert [followed.look(up(readings(tokens=99), ranks)).condition for _ in range(7)][-1] == "hung"


def test_an_engine_that_refuses_and_comes_back_was_down_and_was_restarted(followed):
    followed.look(up(readings(process_start_time_seconds=100.0)))
    followed.look(down(refused=True, said="/health: Connect call failed"))
    report = followed.look(up(readings(process_start_time_seconds=150.0), at_ms=170_000))
    assert report.started_at_ms == 150_000
    assert [(one.kind, one.severity) for one in followed.told] == [
        ("engine_down", "critical"),
        ("engine_up", "info"),
        ("engine_restarted", "warning"),
    ]
    assert followed.told[0].detail == f"{SUBJECT} is dead: /health: Connect call failed"
    assert followed.told[2].detail == f"{SUBJECT} started again, and nobody here asked for it"


def test_an_engine_that_did_not_answer_for_a_while_was_not_restarted(followed):
    numbers = readings(process_start_time_seconds=100.0)
    followed.look(up(numbers))
    followed.look(down("unreachable", said="/health: no answer in time"))
    followed.look(up(numbers))
    assert followed.kinds == ["engine_down", "engine_up"]
    assert followed.told[0].detail == f"{SUBJECT} is unreachable: /health: no answer in time"


def test_a_hung_engine_that_is_killed_and_restarted_between_two_looks_is_well_and_restarted(followed):
    for _ in range(7):
        followed.look(up(readings(tokens=500)))
    report = followed.look(up(readings(tokens=3)))
    assert (report.condition, followed.course.restarts) == ("ok", 1)
    assert followed.kinds == ["engine_hung", "engine_up", "engine_restarted"]


def test_a_restart_that_was_asked_for_is_no_warning_and_the_next_one_is(followed):
    followed.look(up(readings(tokens=5)))
    followed.course.expect_restart(until_seconds=1000)
    followed.look(up(readings(tokens=3)))
    followed.look(up(readings(tokens=1)))
    assert [one.severity for one in followed.told] == ["info", "warning"]


def test_what_a_down_engine_kept_of_its_standstill_is_forgotten(followed):
    for _ in range(6):
        followed.look(up(readings()))
    followed.look(down())
    assert [followed.look(up(readings())).condition for _ in range(6)] == ["ok"] * 6


def test_an_engine_that_is_down_for_a_restart_that_was_asked_for_wakes_nobody_until_its_time_is_over(followed):
    followed.look(up(readings(tokens=5)))
    followed.course.expect_restart(until_seconds=followed.now_seconds + 100)
    for _ in range(9):
        followed.look(down(refused=True))
    assert [(one.kind, one.severity) for one in followed.told] == [("engine_down", "warning")]
    for _ in range(9):
        followed.look(down(refused=True))
    assert [(one.kind, one.severity) for one in followed.told[1:]] == [("engine_down", "critical")]
    assert followed.told[1].detail == f"{SUBJECT} is dead beyond the time of its restart: /health: answered 503"
    followed.look(up(readings(tokens=0)))
    assert [(one.kind, one.severity) for one in followed.told[2:]] == [
        ("engine_up", "info"),
        ("engine_restarted", "warning"),
    ]


def test_an_engine_that_was_down_before_a_restart_was_asked_for_is_told_no_second_time(followed):
    followed.look(down())
    followed.course.expect_restart(until_seconds=followed.now_seconds + 25)
    for _ in range(9):
        followed.look(down())
    assert followed.kinds == ["engine_down"]


# Any course: a process that works, stands, restarts, rests or is away, and looks that show it in part.

numbers: st.SearchStrategy[Any] = st.one_of(
    st.just([]),
    st.builds(
        readings,
        running=st.integers(0, 2),
        tokens=st.integers(0, 2),
        iterations=st.just(0),
        kv=st.just(0.5),
        awake=st.sampled_from([0, 1, 1, 1]),
        process_start_time_seconds=st.sampled_from([100.0, 100.0, 200.0]),
    ),
)
any_look = st.one_of(
    st.builds(up, numbers),
    st.builds(up, numbers),
    st.builds(down, st.sampled_from(["dead", "unreachable"]), st.booleans()),
)
steps = st.tuples(any_look, st.integers(1, 70), st.sampled_from([None, True, False]), st.sampled_from([0, 0, 0, 100]))


@given(st.lists(steps, max_size=40))
def test_no_event_is_told_twice_and_every_ill_has_one_end_whatever_the_looks_show(course):
    followed = Followed()
    open_ills: dict[str, Any] = {}
    for look, passed_seconds, paused, asked_seconds in course:
        if asked_seconds:
            followed.course.expect_restart(followed.now_seconds + asked_seconds)
        already, restarts = len(followed.told), followed.course.restarts
        report = followed.look(look, passed_seconds, paused)
        new = followed.told[already:]
        for one in new:
            if one.kind == "engine_up":
                assert open_ills, "an end of nothing"
                open_ills.clear()
            elif one.kind != "engine_restarted":
                graver = (open_ills.get(one.kind), one.severity) == ("warning", "critical")
                assert one.kind not in open_ills or graver, "told twice"
                open_ills[one.kind] = one.severity
        assert [one.kind for one in new].count("engine_restarted") == followed.course.restarts - restarts
        assert bool(open_ills) == (report.condition != "ok")
        assert (report.condition in ("dead", "unreachable")) == (report.state == "down")
        assert (report.error or "").startswith("hung: ") == (look.report.state == "up" and _shows_hang(look, report))


def _shows_hang(look, report):
    """Whether this look itself is evidence of the hang; one without numbers leaves it as it was."""
    return report.condition == "hung" and bool(look.numbers)
