"""Lines take what interactive requests leave, and give way at once."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.batches.room import BatchRoom, Options, Sight
from tests.policy.batches.engine import READING, WRITING, Load, Ruled, as_many_as_run, none, run

OPTIONS = Options(headroom_permille=150, ttft_percent=110)
IDLE = Sight(0, 0, 0, 0, 0, 1)
sights = st.builds(
    Sight,
    st.integers(0, 3),
    st.none() | st.integers(0, 5),
    st.none() | st.integers(0, 1200),
    st.integers(0, 80),
    st.integers(0, 80),
    st.integers(0, 3),
    st.none() | st.integers(0, 80),
)


def learned(limit: int) -> BatchRoom:
    """A room that has climbed to about this limit, with nothing against it."""
    room, now_ms = BatchRoom(OPTIONS, 0), 0
    while room.limit < limit:
        now_ms += 1_000
        room.look(IDLE._replace(in_flight=room.limit, lines=room.limit), now_ms)
    return room


@given(seen=st.lists(st.tuples(st.integers(1, 3_000), sights), max_size=40))
def test_none_starts_beside_one_that_waits_over_the_headroom_or_the_limit(seen: list[tuple[int, Sight]]) -> None:
    room, now_ms = BatchRoom(OPTIONS, 0), 0
    for passed_ms, sight in seen:
        now_ms += passed_ms
        room.look(sight, now_ms)
        free = room.free(sight, now_ms)
        assert room.limit >= 1
        assert sight.in_flight + max(0, free) <= max(room.limit, sight.in_flight)
        if sight.interactive_waiting or not sight.engines or (sight.kv_permille or 0) >= 850:
            assert free <= 0
        if sight.concurrency:
            assert sight.in_flight + max(0, free) <= max(1, sight.concurrency * 85 // 100, sight.in_flight)


def test_it_grows_while_all_stands_well_and_only_where_it_is_used() -> None:
    room = learned(40)
    room.look(IDLE._replace(in_flight=1, lines=1), 100_000)
    before = room.limit
    for second in range(101, 110):
        room.look(IDLE._replace(in_flight=1, lines=1), second * 1_000)
    assert room.limit == before


@pytest.mark.parametrize(
    ("trouble", "left"),
    [({"interactive_waiting": 1}, 36), ({"engines_waiting": 5, "engines_running": 36}, 30)],
    ids=["interactive waits", "engines queue"],
)
def test_it_shrinks_once_and_remembers_where(trouble: dict[str, int], left: int) -> None:
    room = learned(40)
    assert room.limit == 41
    full = IDLE._replace(in_flight=41, lines=41)
    assert room.free(full._replace(**trouble), 100_000) <= 0
    for second in range(100, 105):
        # Those in flight are not fewer yet.
        room.look(full._replace(**trouble), second * 1_000)
    assert room.limit == left
    for second in range(105, 700):
        room.look(IDLE._replace(in_flight=room.limit, lines=room.limit), second * 1_000)
        assert room.limit == left
    for second in range(700, 710):
        room.look(IDLE._replace(in_flight=room.limit, lines=room.limit), second * 1_000)
    assert left < room.limit <= left + 12


def test_one_that_has_just_come_is_no_queue() -> None:
    room = learned(40)
    full = IDLE._replace(in_flight=41, lines=41)
    for second in range(100, 120):
        room.look(full._replace(engines_waiting=5 * (second % 2)), second * 1_000)
    assert room.limit >= 41


def test_requests_that_came_since_the_engines_were_asked_are_no_part_of_what_they_run() -> None:
    room = learned(40)
    queue = IDLE._replace(engines_running=36, engines_waiting=5, lines=41)
    for second in (100, 101):
        room.look(queue._replace(in_flight=60), second * 1_000)
    room.look(queue._replace(in_flight=41), 102_000)
    # What they run at once, less the headroom, as this gateway is the only one.
    assert room.limit == 36 * 85 // 100


def test_those_that_came_within_a_step_of_many_are_no_queue_and_more_are_one() -> None:
    busy = IDLE._replace(in_flight=60, lines=50, engines_running=60)
    for waiting, queues in ((4, False), (5, True)):
        room = learned(60)
        before = room.limit
        for second in range(100, 120):
            room.look(busy._replace(in_flight=room.limit, engines_waiting=waiting), second * 1_000)
        assert (room.limit < before) is queues


def test_a_request_that_came_before_lines_were_made_fewer_says_nothing_of_these() -> None:
    room = learned(40)
    for _ in range(64):
        room.first_token(100, 500, 90_000, lines=0)
        room.first_token(900, 500, 100_000, lines=40)
    room.look(IDLE._replace(in_flight=room.limit, lines=40), 100_000)
    fewer = room.limit
    # Told once they have ended: they came before, and had their first token after.
    for _ in range(64):
        room.first_token(900, 500, 100_500, lines=30)
    for second in (102, 104):
        room.look(IDLE._replace(in_flight=fewer, lines=30), second * 1_000)
    assert room.limit == fewer < 40


def test_interactive_requests_that_need_the_room_do_not_shrink_it_where_no_line_runs() -> None:
    room = learned(40)
    before = room.limit
    for second in range(100, 110):
        room.look(Sight(3, 5, 990, 60, 0, 1), second * 1_000)
    assert room.limit == before


def test_a_time_to_first_token_that_rises_makes_lines_fewer_until_it_has_fallen() -> None:
    room = learned(40)
    rng = random.Random(3)

    def seen(slower_percent: int, at_ms: int, lines: int, count: int = 64) -> int:
        """Requests of all lengths; the limit after the next look."""
        for _ in range(count):
            prompt_tokens = rng.choice((100, 700, 3_000))
            room.first_token(prompt_tokens * slower_percent // 100, prompt_tokens, at_ms, lines)
        room.look(IDLE._replace(in_flight=room.limit, lines=lines), at_ms)
        return room.limit

    before = seen(100, 90_000, lines=0)
    higher = seen(105, 100_000, lines=40)
    assert higher >= before
    lower = seen(150, 101_500, lines=40, count=256)
    assert lower == higher * 9 // 10
    # Nothing is known of it until some have come; then it goes up by a small step for each lot.
    assert seen(100, 103_000, lines=40, count=5) == lower
    assert seen(100, 104_000, lines=40) == lower + 1
    assert seen(100, 105_000, lines=40, count=5) == lower + 1


def test_what_one_prompt_alone_took_says_nothing_of_all() -> None:
    room = learned(40)
    for number in range(64):
        room.first_token(100, 500, 90_000, lines=0)
        room.first_token(5_000 if number % 4 == 0 else 100, 500, 90_000, lines=40)
    before = room.limit
    room.look(IDLE._replace(in_flight=room.limit, lines=40), 90_000)
    assert room.limit >= before


def test_a_promise_that_is_broken_makes_lines_fewer_also_where_nothing_was_seen_before() -> None:
    room = learned(40)
    for _ in range(40):
        room.first_token(2_100, 500, 100_000, lines=40)
    promised = IDLE._replace(in_flight=41, lines=41, ttft_slo_ms=2_000)
    room.look(promised, 100_000)
    assert room.limit < 41


def test_a_refusal_of_the_pool_pauses_it() -> None:
    room = learned(40)
    before = room.limit
    room.refused(100_000, 3_000)
    assert room.limit < before
    assert room.free(IDLE, 102_999) == 0
    assert room.free(IDLE, 103_000) > 0


def test_lines_fill_what_is_left_at_little_cost_to_interactive_requests() -> None:
    loads = [(2, 1), (5, 1), (10, 2), (10, 3)]
    outcomes = [filled_and_cost(Load(rate_per_second, WRITING), seed) for rate_per_second, seed in loads]
    assert all(filled >= 0.8 and cost <= 0.1 for filled, cost in outcomes), outcomes


def test_lines_whose_prompts_stand_in_the_way_run_in_smaller_numbers() -> None:
    load = Load(5, READING)
    filled, cost = filled_and_cost(load, seed=1)
    assert filled >= 0.3
    crowded = run(load._replace(warm_up_seconds=30, seconds=60), as_many_as_run(64), seed=1)
    assert cost <= 0.3 < crowded.ttft_p95_ms / run(load, none, seed=1).ttft_p95_ms - 1


def filled_and_cost(load: Load, seed: int) -> tuple[float, float]:
    """What lines get of what they would at any cost, and how much p95 of the time to first token rises."""
    alone = run(load, none, seed)
    most = run(load._replace(warm_up_seconds=30, seconds=60), as_many_as_run(load.limits.max_num_seqs), seed)
    beside = run(load, Ruled(OPTIONS, begins=60), seed)
    return beside.line_tokens_per_second / most.line_tokens_per_second, beside.ttft_p95_ms / alone.ttft_p95_ms - 1
