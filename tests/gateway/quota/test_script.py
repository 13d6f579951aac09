"""The script gives the answers of the bucket, over any history, and holds what a bucket in one process cannot."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.quota.ledger import LARGEST, Standing
from policy.bucket import Bucket, Granted
from tests.gateway.quota.script import DAY_MS, LEASE_MS, Script, terms


@pytest.fixture
def script(redis_url: str) -> Script:
    return Script(redis_url)


AMOUNT = st.integers(0, 6_000)
LIMIT = st.integers(0, 5_000)
STEP = st.one_of(
    st.tuples(st.just("reserve"), AMOUNT, st.integers(0, 9)),
    st.tuples(st.just("settle"), st.integers(0, 8_000), st.integers(0, 9)),
    st.tuples(st.just("wait"), st.integers(0, 120_000), st.just(0)),
    st.tuples(st.just("limit"), LIMIT, st.just(0)),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LIMIT, st.lists(STEP, max_size=30), st.sampled_from([1, LARGEST // 5_000]))
def test_any_history_gives_the_answers_of_the_bucket(
    redis_url: str, limit: int, steps: list[tuple[str, int, int]], scale: int
):
    script = Script(redis_url)
    limit *= scale
    script.reserve(terms(tpm=limit), "first", 0)
    bucket = Bucket(limit, script.now_ms, LEASE_MS)
    bucket.reserve("first", 0, script.now_ms)
    for kind, size, number in steps:
        request_id, amount = f"r{number}", size * scale
        if kind == "wait":
            script.move(size)
            continue
        if kind == "limit":
            limit = amount
        standing: Standing | None
        if kind == "settle":
            standing = script.settle(request_id, amount)
            assert standing is not None
            assert standing.granted == bucket.settle(request_id, amount, script.now_ms)
        else:
            standing = script.reserve(terms(tpm=limit), request_id, amount)
            if limit != bucket.capacity:
                bucket.set_limit(limit, script.now_ms)
            assert standing.granted == isinstance(bucket.reserve(request_id, amount, script.now_ms), Granted)
        assert standing.tokens is not None
        # Where nothing was forgiven it does not matter under which limit.
        expected = bucket.state(script.now_ms)
        assert standing.tokens[:3] == expected[:3]
        assert not expected.forgiven or standing.tokens == expected
    script.client.delete(script.key, f"{script.key}:leases")


def test_a_reservation_is_of_all_limits_or_of_none(script: Script):
    limits = terms(tpm=100, rpm=5, parallel=2, budget=500)
    assert script.reserve(limits, "a", 60, 2).granted
    before = script.reserve(limits, "b", 10, 1)
    assert not before.granted, "no sequence is left"
    after = script.reserve(limits, "c", 60, 0)
    assert not after.granted, "no 60 tokens are left"
    assert (after.running, after.taken) == (2, 60)
    assert after.requests is not None
    assert after.requests.level // 60_000 == 4


def test_a_request_is_settled_once_and_an_unknown_one_changes_nothing(script: Script):
    assert script.settle("nobody", 50) is None
    limits = terms(tpm=100, parallel=9, budget=100)
    script.reserve(limits, "a", 80, 3)
    script.reserve(limits, "a", 80, 3)
    for _ in range(3):
        standing = script.settle("a", 30)
        assert standing is not None
        assert (standing.running, standing.taken) == (0, 30)
    unknown = script.settle("nobody", 50)
    assert unknown is not None
    assert not unknown.granted
    assert unknown.taken == 30


def test_more_than_was_reserved_makes_a_debt(script: Script):
    limits = terms(tpm=60)
    script.reserve(limits, "a", 10)
    script.settle("a", 70)
    assert not script.reserve(limits, "b", 1).granted
    script.move(9_000)
    assert not script.reserve(limits, "b", 1).granted, "the debt is refilled first"
    script.move(3_000)
    assert script.reserve(limits, "b", 1).granted


def test_a_gateway_that_died_gives_back_all_of_it_at_its_time_whatever_others_write(script: Script):
    limits = terms(tpm=1, rpm=10_000, parallel=5, budget=100)
    script.reserve(limits, "dead", 1, 5)
    for number in range(9):
        script.move(LEASE_MS // 10)
        standing = script.reserve(limits, f"late-{number}", 0, 0)
        script.settle(f"late-{number}", 0)
        assert (standing.running, standing.taken) == (5, 1)
    script.move(LEASE_MS // 10)
    standing = script.reserve(limits, "next", 0, 5)
    assert standing.granted
    assert (standing.running, standing.taken) == (5, 0)
    late = script.settle("dead", 90)
    assert late is not None
    assert (late.granted, late.taken) == (False, 0)


def test_an_older_revision_does_not_bring_its_limits_back(script: Script):
    script.reserve(terms(tpm=1_000, revision=6), "a", 1_000)
    lowered = script.reserve(terms(tpm=100, revision=7), "b", 1)
    assert not lowered.granted
    behind = script.reserve(terms(tpm=1_000, revision=6), "c", 1)
    assert behind.tokens is not None
    assert behind.tokens.limit == 100
    raised = script.reserve(terms(tpm=1_500, revision=8), "d", 500)
    assert raised.granted, "500 more than the 1,000 that were used"
    script.move(5_001)
    restored = script.reserve(terms(tpm=50, revision=2), "e", 1)
    assert restored.tokens is not None
    assert restored.tokens.limit == 50, "a control plane that was set back to a backup"


def test_a_day_ends_once_for_all_gateways(script: Script):
    end_ms = script.reserve(terms(tpm=1), "look", 0).at_ms + DAY_MS

    def reserve(request_id: str, tokens: int) -> Standing:
        return script.reserve(terms(budget=100, day_end_ms=end_ms - script.moved_ms), request_id, tokens)

    reserve("a", 60)
    script.settle("a", 60)
    script.move(DAY_MS - LEASE_MS // 2)
    assert reserve("over-midnight", 40).granted
    assert not reserve("b", 1).granted
    script.move(LEASE_MS // 2)
    behind = reserve("c", 70)
    assert behind.granted, "it named the day that had just ended"
    again = reserve("d", 40)
    assert (again.granted, again.taken) == (False, 70)
    settled = script.settle("over-midnight", 40)
    assert settled is not None
    assert settled.taken == 70, "what began on another day counts there"


def test_a_budget_that_is_changed_or_taken_off_keeps_what_was_used(script: Script):
    script.reserve(terms(budget=100), "a", 60)
    script.settle("a", 60)
    assert not script.reserve(terms(budget=50, revision=2), "b", 1).granted
    assert script.reserve(terms(revision=3), "c", 10).granted
    assert script.reserve(terms(budget=80, revision=4), "d", 10).granted
    assert not script.reserve(terms(budget=80, revision=4), "e", 1).granted


def test_a_lease_of_a_limit_that_was_taken_off_gives_nothing_to_the_next(script: Script):
    script.reserve(terms(tpm=100), "a", 100)
    script.reserve(terms(revision=2), "b", 100)
    script.reserve(terms(tpm=100, revision=3), "c", 100)
    for old in "ab":
        standing = script.settle(old, 0)
        assert standing is not None
        assert standing.tokens is not None
        assert standing.tokens.level < 60_000


def test_a_reserve_that_comes_after_it_was_given_up_takes_nothing(script: Script):
    limits = terms(tpm=100, parallel=1)
    script.call("cancel", "late")
    standing = script.reserve(limits, "late", 100)
    assert standing.tokens is not None
    assert (standing.tokens.level, standing.running) == (6_000_000, 0)
    script.reserve(limits, "early", 100)
    script.call("cancel", "early")
    assert script.reserve(limits, "next", 100).granted


def test_an_idle_tenant_leaves_nothing(script: Script):
    keys = [script.key, f"{script.key}:leases"]
    script.reserve(terms(tpm=100, parallel=1), "a", 100)
    assert all(LEASE_MS - 10_000 <= script.client.pttl(key) <= LEASE_MS for key in keys), "as long as its lease"
    script.settle("a", 400)
    assert 230_000 <= script.client.pttl(script.key) <= 240_001, "as long as its debt"
    script.move(4 * 60_000)
    script.settle("a", 0)
    assert script.client.pttl(script.key) <= 60_000
    assert not script.client.exists(keys[1])


def test_a_clock_that_was_ahead_gives_nothing_and_does_not_keep_a_bucket_empty(script: Script):
    """It was set right, or a Redis whose clock was right took over."""
    limits, a_minute = terms(tpm=60), 60_000
    script.reserve(limits, "a", 60)
    script.settle("a", 60)
    script.move(-DAY_MS)
    assert not script.reserve(limits, "b", 5).granted
    script.move(a_minute)
    assert script.reserve(limits, "c", 60).granted


def test_a_lease_whose_state_was_evicted_lapses_all_the_same(script: Script):
    script.reserve(terms(parallel=1), "a", 1)
    script.client.delete(script.key)
    script.reserve(terms(parallel=1), "b", 1)
    script.move(LEASE_MS)
    assert script.reserve(terms(parallel=1), "c", 1).granted
    assert script.client.zrange(f"{script.key}:leases", 0, -1) == [b"c"]


def test_what_a_gateway_told_is_forgotten_in_a_day(script: Script):
    limits = terms(tpm=100, budget=1_000)
    for gateway in ("one", "other"):
        script.told("rejoin", *limits, gateway, 0, *("-",) * 4, 0, 0, 7, 0, 0, 0, limits.day_end_ms, 0, 0)
    assert script.told("settle", "none", 0, 0).taken == 14
    assert script.client.hexists(script.key, "g:one")
    script.move(DAY_MS)
    assert script.reserve(limits, "a", 100).granted
    assert not script.client.hexists(script.key, "g:one")
    assert not script.client.hexists(script.key, "g:other")
