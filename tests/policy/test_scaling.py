"""How many engines a pool should have: up at once, down slowly, never by how busy a GPU is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policy.scaling import TARGET_PERMILLE, Signals, Wanted, needs_spare, settled, wanted_engines

numbers = st.none() | st.floats(0, 1e6)
signals = st.builds(
    Signals,
    engines=st.integers(0, 50),
    admissible_tokens=st.none() | st.integers(0, 10**7),
    held_tokens=numbers,
    waiting_tokens=numbers,
    queue_length=numbers,
    queue_seconds=numbers,
    ttft_seconds=numbers,
    ttft_slo_seconds=numbers,
)
QUIET = Signals(4, 400_000, 160_000.0, 0.0, 0.0, 0.0, 0.2, 2.0)


def test_what_is_held_and_what_waits_are_shared_out_to_a_target():
    assert wanted_engines(QUIET) == 2
    assert wanted_engines(QUIET._replace(held_tokens=320_000.0)) == 4
    assert wanted_engines(QUIET._replace(held_tokens=390_000.0, waiting_tokens=410_000.0)) == 10


def test_who_waits_too_long_for_a_first_token_asks_for_more_and_at_most_twice_as_many():
    late = QUIET._replace(queue_length=30.0, ttft_seconds=3.0)
    assert wanted_engines(late) == 6
    assert wanted_engines(late._replace(ttft_seconds=60.0)) == 8
    assert wanted_engines(late._replace(queue_length=0.0)) == 2, "more engines shorten no prefill"


def test_where_nothing_is_known_it_stays_as_it_is():
    assert wanted_engines(Signals(3, None, None, None, None, None, None, None)) == 3
    assert wanted_engines(Signals(0, None, None, None, None, None, None, None)) == 1


@given(signals)
def test_at_least_one_and_never_fewer_for_more_work(now: Signals) -> None:
    wanted = wanted_engines(now)
    assert wanted >= 1
    if now.held_tokens is not None:
        assert wanted_engines(now._replace(held_tokens=now.held_tokens * 2)) >= wanted
        assert wanted_engines(now._replace(waiting_tokens=(now.waiting_tokens or 0) + 1000)) >= wanted


@given(signals)
def test_what_it_wants_has_room_for_what_is_held_and_waits(now: Signals) -> None:
    if now.engines and now.admissible_tokens and now.held_tokens is not None:
        each = now.admissible_tokens / now.engines
        demand = now.held_tokens + (now.waiting_tokens or 0)
        assert wanted_engines(now) * each * TARGET_PERMILLE / 1000 >= demand * 0.99 - each


@given(
    st.lists(st.tuples(st.integers(0, 120_000), st.integers(1, 50)), min_size=1, max_size=60), st.integers(0, 600_000)
)
def test_the_number_to_have_is_the_most_wanted_within_the_time(steps: list[tuple[int, int]], down_ms: int) -> None:
    at_ms, recent, all_wanted = 0, list[Wanted](), list[Wanted]()
    for after_ms, engines in steps:
        at_ms += after_ms
        now = Wanted(at_ms, engines)
        all_wanted.append(now)
        recent, desired = settled(recent, now, down_ms)
        within = [each.engines for each in all_wanted if each is now or at_ms - down_ms < each.at_ms]
        assert desired == max(within)
        assert desired >= engines
        assert len({each.engines for each in recent}) == len(recent)


def test_a_spare_is_needed_where_a_start_takes_longer_than_anyone_waits():
    assert needs_spare(90_000, 5_000)
    assert not needs_spare(4_000, 5_000)
    assert not needs_spare(None, 5_000)
