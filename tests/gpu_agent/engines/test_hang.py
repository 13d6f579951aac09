"""When standing numbers are a hang."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_agent.engines.hang import can_tell, standstill
from tests.wire.engine_pages.reading import TEXT, page_of
from wire.engine_pages.numbers import Reading, readings
from wire.engine_pages.scan import Scan

WORK = (
    "iterations_total",
    "prompt_tokens_total",
    "generation_tokens_total",
    "inter_token_latency_seconds_count",
    "kv_cache_usage_ratio",
)
# What a server counts by itself, its core hung or not.
IDLE_TALK = ("requests_waiting", "requests_finished_total", "queue_seconds_count")
counts = st.integers(0, 3)
# Few values and long runs: the interesting looks are those that say the same again.
looks = st.lists(
    st.tuples(counts, st.tuples(*(st.integers(0, 1) for _ in WORK)), counts, st.integers(1, 30)),
    min_size=1,
    max_size=30,
)


def numbers(running, work, talk=0):
    told = zip(WORK, work, strict=True)
    return [
        Reading("requests_running", (), running),
        *(Reading(name, (), value) for name, value in told),
        *(Reading(name, (), talk) for name in IDLE_TALK),
    ]


def followed(looks):
    """Each look's time with how long everything has stood still by then; None where nothing runs."""
    still, now_seconds = None, 1000
    for running, work, talk, passed_seconds in looks:
        now_seconds += passed_seconds
        still = standstill(still, numbers(running, work, talk), now_seconds, now_seconds * 1000)
        yield now_seconds, None if still is None else still.lasted_seconds(now_seconds)


@given(looks)
def test_it_has_stood_still_since_the_first_of_the_last_looks_that_ran_and_did_the_same_work(looks):
    times = [at for at, _ in followed(looks)]
    for index, (at, lasted_seconds) in enumerate(followed(looks)):
        running, work, *_ = looks[index]
        if running == 0:
            assert lasted_seconds is None
            continue
        first = index
        while first > 0 and looks[first - 1][0] > 0 and looks[first - 1][1] == work:
            first -= 1
        assert lasted_seconds == at - times[first]


@pytest.mark.parametrize("moved", range(len(WORK)))
@pytest.mark.parametrize("value", [0, 6])
def test_any_work_that_moves_is_life_and_so_is_a_counter_that_begins_again(moved, value):
    before = standstill(None, numbers(1, [5] * len(WORK)), 0, 0)
    work = [value if index == moved else 5 for index in range(len(WORK))]
    after = standstill(before, numbers(1, work), 100, 100_000)
    assert after is not None
    assert after.lasted_seconds(100) == 0


def test_it_says_how_many_run_now_and_since_when_nothing_moved():
    before = standstill(None, numbers(1, [5] * len(WORK)), 7, 1_700_000_000_000)
    after = standstill(before, numbers(3, [5] * len(WORK), talk=9), 80, 1_700_000_073_000)
    assert after is not None
    assert (after.running_requests, after.since_ms, after.lasted_seconds(80)) == (3, 1_700_000_000_000, 73)


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("vllm-0.32.0", True),
        ("vllm-0.8", True),
        ("sglang", True),
        # Their counters grow when a request ends: a long answer would look like a hang.
        ("trtllm", False),
        ("tgi", True),
        ("llamacpp", True),
    ],
)
def test_it_can_be_told_where_something_moves_while_a_request_runs(page, expected):
    kind = page.partition("-")[0]
    scan = Scan(kind, TEXT)
    scan.feed(page_of(page))
    assert can_tell(readings(kind, scan.end())) == expected


def test_it_cannot_be_told_without_numbers_or_without_what_runs():
    assert not can_tell([])
    assert not can_tell(numbers(1, [1] * len(WORK))[1:])
