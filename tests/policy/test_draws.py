"""Draws that share out evenly."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from policy.draws import EvenDraws
from policy.routing import pool_by_weight

BEGINNINGS = st.floats(0, 1, exclude_max=True)


@given(BEGINNINGS, st.integers(5, 500), st.integers(1, 2000))
def test_of_any_number_of_requests_a_pool_gets_its_share_but_for_a_few(
    beginning: float, share_permille: int, requests: int
) -> None:
    draws = EvenDraws(lambda: beginning)
    weights = {"new": share_permille, "old": 1000 - share_permille}
    sent = Counter(pool_by_weight(weights, draws.draw("m")) for _ in range(requests))
    assert abs(sent["new"] - requests * share_permille / 1000) <= 4


@given(BEGINNINGS, st.integers(5, 500))
def test_a_pool_of_a_small_share_is_never_long_without_a_request(beginning: float, share_permille: int) -> None:
    draws = EvenDraws(lambda: beginning)
    weights = {"new": share_permille, "old": 1000 - share_permille}
    chosen = [pool_by_weight(weights, draws.draw("m")) == "new" for _ in range(4000)]
    at = [number for number, is_new in enumerate(chosen) if is_new]
    assert max(later - sooner for sooner, later in pairwise(at)) <= 3 * 1000 / share_permille


def test_models_whose_requests_alternate_are_each_shared_out() -> None:
    draws = EvenDraws(lambda: 0.3)
    sent = {"a": Counter[bool](), "b": Counter[bool]()}
    for number in range(800):
        name = "ab"[number % 2]
        sent[name][draws.draw(name) < 0.25] += 1
    assert all(abs(each[True] - 100) <= 3 for each in sent.values())
