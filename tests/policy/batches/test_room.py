"""Lines take what interactive requests leave, and give way at once."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.batches.room import BatchRoom, Options, Sight

OPTIONS = Options(headroom_permille=150, ttft_percent=115)
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
    [({"interactive_waiting": 1}, 36), ({"engines_waiting": 5}, 33)],
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
    for second in range(105, 215):
        room.look(IDLE._replace(in_flight=room.limit, lines=room.limit), second * 1_000)
        assert room.limit == left
    for second in range(215, 225):
        room.look(IDLE._replace(in_flight=room.limit, lines=room.limit), second * 1_000)
    assert left < room.limit <= left + 8


def test_one_that_has_just_come_is_no_queue() -> None:
    room = learned(40)
    full = IDLE._replace(in_flight=41, lines=41)
    for second in range(100, 120):
        room.look(full._replace(engines_waiting=5 * (second % 2)), second * 1_000)
    assert room.limit >= 41


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
    higher = seen(110, 100_000, lines=40)
    assert higher >= before
    lower = seen(150, 101_500, lines=40, count=256)
    assert lower <= higher * 9 // 10
    # Nothing is known of it until some have come.
    assert seen(100, 103_000, lines=40, count=5) == lower
    assert seen(100, 400_000, lines=40) > lower


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


class Outcome(NamedTuple):
    filled: float
    queued: float


def simulated(sequences: int, interactive: float, seconds: int, seed: int) -> Outcome:
    """An engine of so many sequences, of which interactive requests hold a share that wanders around `interactive`.

    `filled`: of the sequences that these leave. `queued`: the share of time in which the engine has a queue.
    """
    rng, room = random.Random(seed), BatchRoom(OPTIONS, 0)
    lines, filled, left, queued = 0, 0, 0, 0
    looked_waiting = 0
    held = round(sequences * interactive)
    for tick in range(seconds * 20):
        drift = sequences * interactive - held
        held = min(
            sequences,
            max(0, held + rng.choice((-1, 0, 0, 0, 1)) + (rng.random() < abs(drift) / 200) * (1 if drift > 0 else -1)),
        )
        # A line runs for five seconds on average.
        lines -= sum(1 for _ in range(lines) if rng.random() < 0.01)
        waiting = max(0, held + lines - sequences)
        if tick % 20 == 0:
            looked_waiting = waiting
        now_ms = tick * 50
        sight = Sight(0, looked_waiting, 0, held + lines, lines, 1)
        room.look(sight, now_ms)
        lines += max(0, room.free(sight, now_ms))
        if tick > 20 * 60:
            filled += min(lines, sequences - held)
            left += sequences - held
            queued += waiting > 0
    return Outcome(filled / left, queued / (seconds * 20 - 20 * 60))


# The headroom of 8 % is the larger part of what is left, the less that is.
@pytest.mark.parametrize(("interactive", "filled"), [(0.1, 0.85), (0.4, 0.8), (0.7, 0.7)])
@pytest.mark.parametrize("seed", [1, 2])
def test_it_fills_most_of_what_is_left_and_seldom_makes_a_queue(interactive: float, filled: float, seed: int) -> None:
    outcome = simulated(64, interactive, seconds=600, seed=seed)
    assert outcome.filled >= filled
    assert outcome.queued <= 0.15
