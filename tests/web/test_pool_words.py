"""What is said of a pool: whatever is not measured is said to be so, and trouble always has a reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.utils.translation import override
from hypothesis import given
from hypothesis import strategies as st

from controlplane.web.measured import FRESH_SECONDS
from controlplane.web.shown.pool_words import (
    PROMISES,
    STATES,
    WINDOW_SECONDS,
    Engines,
    Facts,
    Reading,
    reasons,
    sentence,
    state_of,
    why,
)

RATIOS = st.floats(0, 1)
SECONDS = st.floats(0, 1e5)
COUNTS = st.integers(0, 4)
ENGINES = st.builds(Engines, COUNTS, COUNTS, COUNTS, COUNTS)
FACTS = st.builds(
    Facts,
    name=st.just("short"),
    engines=ENGINES,
    promises=st.dictionaries(st.sampled_from(PROMISES), st.floats(0.001, 100)),
    objective_ratio=RATIOS,
    kv_admit_ratio=RATIOS,
    queue_ttl_seconds=SECONDS,
)
READINGS = st.builds(
    Reading,
    kv_left_ratio=st.none() | RATIOS,
    queue_seconds=st.none() | SECONDS,
    engine_seconds=st.none() | SECONDS,
    requests_per_second=st.none() | st.floats(0, 1e4),
    goodput_ratio=st.none() | RATIOS,
    failed_ratio=st.none() | RATIOS,
    refused_ratio=st.none() | RATIOS,
    age_seconds=st.none() | SECONDS,
)
WELL = Reading(
    kv_left_ratio=0.31, queue_seconds=0.4, engine_seconds=1.2, requests_per_second=10.0, goodput_ratio=0.99,
    failed_ratio=0.0, refused_ratio=0.0, age_seconds=5.0,
)  # fmt: skip
POOL = Facts("short", Engines(up=2), {"ttft": 2.0})


def names(facts: Facts, reading: Reading) -> list[str]:
    return [reason.name for reason in reasons(facts, reading)]


def test_a_pool_is_said_in_one_sentence() -> None:
    assert sentence(WELL, Engines(up=2)) == "31 % of KV left, queue 0.4 s, engine time 1.2 s"
    with override("tr"):
        assert sentence(WELL, Engines(up=2)) == "KV'de %31 boş, kuyruk 0,4 sn, motor süresi 1,2 sn"


@pytest.mark.parametrize(
    ("engines", "said"),
    [
        (Engines(up=2, out=1), ", 1 of 3 engines kept out of service"),
        (Engines(unknown=1, out=2), ", 2 of 3 engines kept out of service"),
        # That is why it is down.
        (Engines(down=1, out=1), ""),
        (Engines(up=1, down=1), ""),
    ],
)
def test_engines_that_are_kept_out_are_said_and_are_no_trouble_while_others_serve(engines: Engines, said: str) -> None:
    assert sentence(WELL, engines) == f"31 % of KV left, queue 0.4 s, engine time 1.2 s{said}"
    assert sentence(Reading(), engines) == f"nothing is measured{said}"
    assert not said or names(replace(POOL, engines=engines), WELL) == []


def test_a_pool_that_is_well_has_no_reason() -> None:
    assert reasons(POOL, WELL) == []
    assert state_of([]) == "ok"


@given(FACTS, READINGS)
def test_trouble_has_a_reason_that_can_be_said_and_the_gravest_is_the_state(facts: Facts, reading: Reading) -> None:
    found = reasons(facts, reading)
    places = [STATES.index(reason.state) for reason in found]
    assert places == sorted(places)
    assert (state_of(found) == "ok") == (not found)
    assert all(why(reason) and "%(" not in why(reason) for reason in found)


@given(FACTS, READINGS)
def test_what_was_not_measured_is_never_said_as_a_number(facts: Facts, reading: Reading) -> None:
    said = sentence(replace(reading, kv_left_ratio=None, queue_seconds=None, engine_seconds=None), Engines())
    assert not any(character.isdigit() for character in said.replace(f"{WINDOW_SECONDS // 60} minutes", ""))
    assert "not measured" in said or said == "nothing is measured"


@given(FACTS)
def test_nothing_measured_makes_no_judgement_of_requests_or_room(facts: Facts) -> None:
    assert set(names(facts, Reading())) <= {"no_engine", "none_up", "engines_down", "unmeasured"}
    assert ("unmeasured" in names(facts, Reading())) == (facts.engines.all > 0)


@given(READINGS, st.floats(0, FRESH_SECONDS), st.floats(FRESH_SECONDS + 1, 1e6))
def test_a_reading_is_stale_after_a_minute(reading: Reading, fresh: float, old: float) -> None:
    assert "stale" not in names(POOL, replace(reading, age_seconds=fresh))
    assert "stale" in names(POOL, replace(reading, age_seconds=old))


@given(READINGS, st.floats(0, 1))
def test_more_kept_promises_never_make_a_pool_worse(reading: Reading, more: float) -> None:
    worse = replace(reading, goodput_ratio=min(reading.goodput_ratio or 0.0, more))
    better = replace(reading, goodput_ratio=max(reading.goodput_ratio or 0.0, more))
    assert len(reasons(POOL, better)) <= len(reasons(POOL, worse))


@pytest.mark.parametrize(
    ("engines", "found"),
    [
        (Engines(), ["no_engine"]),
        (Engines(down=2, out=1), ["none_up"]),
        (Engines(up=1, down=1), ["engines_down"]),
        (Engines(up=1, out=1), []),
        # Reached directly, without an agent that would see it.
        (Engines(unknown=1), []),
    ],
)
def test_engines_are_counted(engines: Engines, found: list[str]) -> None:
    assert names(replace(POOL, engines=engines), WELL) == found


@pytest.mark.parametrize(
    ("changed", "name", "text"),
    [
        ({"goodput_ratio": 0.8}, "goodput", "80 % of requests kept what is promised, 95 % shall"),
        ({"failed_ratio": 0.2}, "failing", "20 % of requests failed"),
        ({"refused_ratio": 0.07}, "refusing", "7 % of requests were turned away for want of capacity"),
        ({"kv_left_ratio": 0.05}, "kv_full", "the KV cache is full: gateways fill it to 90 %"),
        ({"queue_seconds": 2.5}, "long_queue", "a request waits 2.5 s, 2 s is the most that it should"),
        ({"age_seconds": 150.0}, "stale", "its engines were last measured 2 min ago"),
    ],
)
def test_each_trouble_is_said_with_its_numbers(changed: dict[str, Any], name: str, text: str) -> None:
    (reason,) = reasons(POOL, replace(WELL, **changed))
    assert (reason.name, why(reason)) == (name, text)


def test_one_unlucky_request_of_a_quiet_night_is_no_trouble() -> None:
    one_a_minute = replace(WELL, requests_per_second=1 / 60, goodput_ratio=0.8, failed_ratio=0.2)
    assert reasons(POOL, one_a_minute) == []
    assert names(POOL, replace(one_a_minute, goodput_ratio=0.6)) == ["goodput"]


def test_without_requests_it_says_so_instead_of_missing_times() -> None:
    idle = Reading(kv_left_ratio=1.0, requests_per_second=0.0, age_seconds=3.0)
    assert sentence(idle, Engines(up=1)) == "100 % of KV left, no request in 5 minutes"
    assert reasons(POOL, idle) == []


def test_a_pool_without_a_promise_waits_as_long_as_its_queue_lets_it() -> None:
    promised_nothing = replace(POOL, promises={}, queue_ttl_seconds=5.0)
    assert names(promised_nothing, replace(WELL, queue_seconds=4.9)) == []
    assert names(promised_nothing, replace(WELL, queue_seconds=5.0)) == ["long_queue"]
