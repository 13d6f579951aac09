"""Queue arithmetic against the seed's examples and a simulated queue."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.queue import (
    debt_per_second,
    mean_in_system,
    mean_seconds_in_system,
    queue_cap,
    utilisation,
    utilisation_for_wait_factor,
    wait_factor,
    wait_ms,
)

rates = st.floats(0.001, 10_000)


def test_the_seeds_queue_holds_forty():
    assert queue_cap(8, 5_000) == 40
    assert wait_ms(40, 8) == 5_000


def test_the_seeds_debt():
    assert debt_per_second(800_000, 300_000) == 500_000
    assert debt_per_second(200_000, 300_000) == 0


@pytest.mark.parametrize(
    ("rate", "acceptable_ms", "cap"), [(0.7, 10_000, 7), (1.1, 30_000, 33), (0.3, 3_000, 0), (0, 5_000, 0)]
)
def test_a_cap_is_whole_and_loses_nothing_to_fractions(rate: float, acceptable_ms: int, cap: int):
    assert queue_cap(rate, acceptable_ms) == cap


@given(rates, st.integers(0, 3_600_000))
def test_the_last_of_a_full_queue_waits_as_long_as_is_acceptable_and_one_more_longer(rate: float, acceptable_ms: int):
    cap = queue_cap(rate, acceptable_ms)
    last, one_more = wait_ms(cap, rate), wait_ms(cap + 1, rate)
    assert last is not None
    assert one_more is not None
    assert last <= acceptable_ms + 1
    assert one_more >= acceptable_ms


def test_where_nothing_is_served_a_wait_has_no_end():
    assert wait_ms(1, 0) is None
    assert wait_ms(0, 0) == 0


@pytest.mark.parametrize(("percent", "factor"), [(0, 0), (50, 1), (80, 4), (90, 9), (95, 19), (99, 99)])
def test_waiting_rises_with_utilisation(percent: int, factor: int):
    rho = percent / 100
    assert wait_factor(rho) == pytest.approx(factor)
    assert utilisation_for_wait_factor(factor) == pytest.approx(rho)


def test_from_full_utilisation_on_no_queue_is_long_enough():
    assert wait_factor(1) == wait_factor(1.5) == wait_factor(utilisation(1, 0)) == math.inf
    assert utilisation_for_wait_factor(math.inf) == 1
    assert utilisation(8, 10) == 0.8
    assert utilisation(0, 0) == 0


@given(rates, rates)
def test_littles_law_reads_both_ways(rate: float, seconds: float):
    assert mean_seconds_in_system(mean_in_system(rate, seconds), rate) == pytest.approx(seconds)


def test_what_does_not_leave_stays_for_ever():
    assert mean_seconds_in_system(3, 0) == math.inf
    assert mean_seconds_in_system(0, 0) == 0


def test_a_simulated_queue_waits_as_the_formula_says():
    """One server, Poisson arrivals at 0.8 of its rate: four mean service times."""
    drawn, rho = random.Random(7), 0.8
    waited = total = 0.0
    count = 200_000
    for _ in range(count):
        # Lindley: the next one waits what this one leaves over.
        waited = max(0.0, waited + drawn.expovariate(1) - drawn.expovariate(rho))
        total += waited
    assert total / count == pytest.approx(wait_factor(rho), rel=0.1)
