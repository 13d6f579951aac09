"""Retries stay a share of requests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policy.retry import RetryBudget


@given(st.integers(0, 1000), st.integers(0, 20), st.lists(st.booleans(), max_size=300))
def test_retries_never_pass_the_share_and_the_burst(permille: int, burst: int, wishes: list[bool]):
    budget = RetryBudget(permille, burst)
    retries = 0
    for requests, wants_retry in enumerate(wishes, start=1):
        budget.earn()
        retries += wants_retry and budget.spend()
        assert retries * 1000 <= burst * 1000 + requests * permille


def test_a_tenth_of_the_requests_may_be_retried_for_ever():
    budget = RetryBudget(100, 1)
    assert budget.spend()
    granted = []
    for _ in range(100):
        budget.earn()
        granted.append(budget.spend())
    assert granted.count(True) == 10


def test_an_empty_budget_says_so_before_it_is_asked():
    budget = RetryBudget(500, 1)
    assert not budget.is_empty
    assert budget.spend()
    assert budget.is_empty
    assert not budget.spend()
    budget.earn()
    budget.earn()
    assert not budget.is_empty
