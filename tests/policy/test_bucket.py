"""Laws of the token bucket, over any history."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from policy.bucket import MS_PER_MINUTE, Bucket, BucketState, Granted, NeverFits, Wait
from policy.quota import gateway_share

LEASE_MS = 90_000


def bucket(limit: int, now_ms: int = 0) -> Bucket:
    return Bucket(limit, now_ms, LEASE_MS)


def test_it_starts_full_refills_evenly_and_holds_no_more_than_a_minute():
    tpm = bucket(600)
    assert tpm.reserve("a", 600, 0) == Granted(600, LEASE_MS)
    assert tpm.settle("a", 600, 0)
    assert [tpm.available(ms) for ms in (0, 99, 100, 1_000, 30_000, 60_000, 600_000)] == [0, 0, 1, 10, 300, 600, 600]


def test_a_refusal_says_when_it_fits_or_that_it_never_does():
    tpm = bucket(600)
    tpm.reserve("a", 500, 0)
    assert tpm.reserve("b", 101, 0) == Wait(100)
    assert tpm.reserve("c", 601, 0) == NeverFits(600)
    assert isinstance(tpm.reserve("b", 101, 100), Granted)


def test_a_limit_of_zero_never_fits_and_answers_no_time():
    closed = bucket(0)
    assert closed.reserve("a", 1, 0) == NeverFits(0)
    assert closed.full_in_ms(0) == 0


def test_a_debt_at_a_limit_lowered_to_zero_is_no_division_by_zero():
    tpm = bucket(10)
    tpm.reserve("a", 10, 0)
    tpm.settle("a", 50, 0)
    tpm.set_limit(0, 0)
    assert tpm.reserve("b", 0, 0) == NeverFits(0)


def test_lowering_bites_at_once_and_makes_no_debt_of_what_was_allowed():
    tpm = bucket(1_000_000)
    tpm.reserve("a", 500_000, 0)
    tpm.settle("a", 500_000, 0)
    tpm.set_limit(100, 0)
    assert tpm.available(0) == 0
    assert isinstance(tpm.reserve("nothing", 0, 0), Granted), "no debt"
    assert isinstance(tpm.reserve("b", 100, MS_PER_MINUTE), Granted)


def test_raising_gives_room_at_once_and_keeps_the_used_part():
    tpm = bucket(100)
    tpm.reserve("a", 100, 0)
    tpm.set_limit(150, 0)
    assert tpm.available(0) == 50


def test_raising_pays_a_debt_and_lowering_does_not_deepen_it():
    tpm = bucket(100)
    tpm.reserve("a", 100, 0)
    tpm.settle("a", 130, 0)
    assert tpm.reserve("b", 0, 0) == Wait(18_000), "30 tokens at 100 a minute"
    tpm.set_limit(10, 0)
    assert tpm.reserve("b", 0, 0) == Wait(180_000), "30 tokens at 10 a minute"
    tpm.set_limit(150, 0)
    assert tpm.available(0) == 20, "150 less the 130 that were used"


def test_lowering_and_raising_again_gives_nothing():
    tpm = bucket(1000)
    tpm.reserve("a", 1000, 0)
    tpm.settle("a", 1000, 0)
    for _ in range(5):
        tpm.set_limit(500, 0)
        tpm.set_limit(1000, 0)
    assert tpm.available(0) == 0


def test_what_lowering_forgave_is_forgotten_after_a_minute():
    tpm = bucket(1_000_000)
    tpm.reserve("a", 1_000_000, 0)
    tpm.settle("a", 1_000_000, 0)
    tpm.set_limit(100, 0)
    tpm.set_limit(1_000_000, MS_PER_MINUTE)
    assert tpm.available(MS_PER_MINUTE) == 1_000_000


def test_a_reservation_that_comes_back_after_lowering_makes_good_for_what_was_forgiven():
    tpm = bucket(1000)
    tpm.reserve("a", 1000, 0)
    tpm.set_limit(500, 0)
    tpm.settle("a", 0, 0)
    assert tpm.available(0) == 500
    tpm.set_limit(1000, 0)
    assert tpm.available(0) == 1000


@given(st.integers(0, 5_000), st.integers(0, 8_000), st.lists(st.integers(0, 5_000), max_size=8))
def test_limits_that_change_and_come_back_at_one_instant_give_no_room(limit: int, used: int, limits: list[int]):
    tpm = bucket(limit)
    tpm.reserve("a", limit, 0)
    tpm.settle("a", used, 0)
    before = tpm.available(0)
    for each in (*limits, limit):
        tpm.set_limit(each, 0)
    assert tpm.available(0) <= before


def test_a_lease_that_nobody_settles_comes_back_and_a_late_settlement_counts_nothing():
    tpm = bucket(100)
    tpm.reserve("a", 100, 0)
    assert tpm.available(LEASE_MS - 1) == 100, "refilled meanwhile"
    tpm.reserve("b", 100, LEASE_MS - 1)
    assert tpm.available(LEASE_MS) == 100
    assert not tpm.settle("a", 100, LEASE_MS)
    assert tpm.available(LEASE_MS) == 100


@given(st.integers(1, 10**9), st.integers(0, 10**9), st.integers(0, 10**9))
def test_the_wait_is_enough_and_not_a_millisecond_too_long(limit: int, taken: int, asked: int):
    taken, asked = min(taken, limit), min(asked, limit)
    tpm = bucket(limit)
    tpm.reserve("a", taken, 0)
    answer = tpm.reserve("b", asked, 0)
    if isinstance(answer, Wait):
        assert isinstance(tpm.reserve("b", asked, answer.wait_ms - 1), Wait)
        assert isinstance(tpm.reserve("b", asked, answer.wait_ms), Granted)
    else:
        assert taken + asked <= limit


@given(st.integers(0, 10**7), st.integers(1, 200))
def test_shares_together_stay_within_a_limit_that_has_one_for_each(limit: int, gateways: int):
    shares = gateway_share(limit, gateways) * gateways
    assert shares <= max(limit, gateways if limit else 0)
    assert limit == 0 or gateway_share(limit, gateways) >= 1


def test_a_lone_gateway_takes_the_whole_limit():
    assert [gateway_share(7, gateways) for gateways in (1, 0, 2, 8)] == [7, 7, 3, 1]


@given(st.integers(0, 10**7), st.integers(-(10**7), 10**7), st.integers(1, 200))
def test_a_bucket_that_is_shared_out_is_never_more_than_it_was(limit: int, level: int, gateways: int):
    whole = BucketState(limit, min(level, limit) * MS_PER_MINUTE, 0, limit)
    part = whole.shared_out(gateway_share(limit, gateways), gateways)
    assert part.level * gateways <= whole.level
    assert part.level <= part.limit * MS_PER_MINUTE


@given(st.integers(0, 5_000), st.integers(0, 8_000), st.integers(0, 5_000), st.integers(0, 120_000))
def test_a_bucket_that_is_restored_goes_on_as_it_was(limit: int, used: int, other: int, ms: int):
    tpm = bucket(limit)
    tpm.reserve("a", limit, 0)
    tpm.settle("a", used, 0)
    tpm.set_limit(other, 0)
    again = Bucket.restored(tpm.state(0), 1_000_000, LEASE_MS)
    for each, origin in ((tpm, 0), (again, 1_000_000)):
        each.set_limit(limit, origin + ms)
    assert again.state(1_000_000 + ms) == tpm.state(ms)
    assert again.obstacle(other, 1_000_000 + ms) == tpm.obstacle(other, ms)


class AnyHistory(RuleBasedStateMachine):
    """Reserves, settles, forgets, waits and changes limits, and keeps its own books of what was given out."""

    @initialize(limit=st.integers(0, 5_000))
    def begin(self, limit: int) -> None:
        self.bucket = bucket(limit)
        self.now_ms = 0
        self.limits = [limit]
        self.live: dict[str, Granted] = {}
        self.ids = 0
        # Net tokens given out so far, and the same at each moment, with the largest limit that held since.
        self.given = 0
        self.history: list[tuple[int, int, int]] = [(0, 0, limit)]

    def expire(self) -> None:
        for request_id, held in list(self.live.items()):
            if held.expires_at_ms <= self.now_ms:
                del self.live[request_id]
                self.given -= held.amount

    @rule(amount=st.integers(0, 6_000))
    def reserve(self, amount: int) -> None:
        self.ids += 1
        before = self.bucket.available(self.now_ms)
        answer = self.bucket.reserve(str(self.ids), amount, self.now_ms)
        if isinstance(answer, Granted):
            assert amount <= before or amount == 0
            assert answer.amount == amount
            self.live[str(self.ids)] = answer
            self.given += amount
            if amount:
                self.no_window_gave_more_than_the_capacity_and_its_refill()
        else:
            assert amount > before or before == 0
            assert self.bucket.available(self.now_ms) == before
            assert isinstance(answer, NeverFits) == (amount > self.limits[-1] or self.limits[-1] == 0)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), used=st.integers(0, 8_000))
    def settle(self, data: st.DataObject, used: int) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.live)))
        held = self.live.pop(request_id)
        assert self.bucket.settle(request_id, used, self.now_ms)
        assert not self.bucket.settle(request_id, used, self.now_ms)
        self.given += used - held.amount

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def reserve_again(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.live)))
        before = self.bucket.available(self.now_ms)
        assert self.bucket.reserve(request_id, 5_000, self.now_ms) == self.live[request_id]
        assert self.bucket.available(self.now_ms) == before

    @rule(ms=st.integers(0, 120_000))
    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.expire()

    @rule(limit=st.integers(0, 5_000))
    def change_limit(self, limit: int) -> None:
        self.bucket.set_limit(limit, self.now_ms)
        self.limits.append(limit)
        self.history = [(ms, given, max(largest, limit)) for ms, given, largest in self.history]

    @invariant()
    def it_holds_no_more_than_its_limit(self) -> None:
        if hasattr(self, "bucket"):
            assert self.bucket.available(self.now_ms) <= self.limits[-1]
            self.history.append((self.now_ms, self.given, self.limits[-1]))

    def no_window_gave_more_than_the_capacity_and_its_refill(self) -> None:
        """Whatever the limits did meanwhile. Asked when something was given: then there is no debt."""
        for then_ms, given_then, largest in self.history:
            refill = largest * (self.now_ms - then_ms) / MS_PER_MINUTE
            assert self.given - given_then <= largest + refill


TestAnyHistory = AnyHistory.TestCase


@pytest.mark.parametrize("back_ms", [1, 10_000])
def test_a_clock_that_steps_back_gives_nothing_twice(back_ms: int):
    tpm = bucket(600, 100_000)
    tpm.reserve("a", 600, 100_000)
    assert tpm.available(110_000) == 100
    assert tpm.available(110_000 - back_ms) == 100
    assert tpm.available(110_000) == 100


@given(st.lists(st.tuples(st.integers(0, 120), st.integers(0, 20_000)), max_size=40))
def test_what_is_taken_for_good_is_a_reservation_settled_at_once(taken: list[tuple[int, int]]):
    taking, reserving, now_ms = bucket(100, 0), bucket(100, 0), 0
    for number, (amount, later_ms) in enumerate(taken):
        now_ms += later_ms
        held = reserving.reserve(str(number), amount, now_ms)
        if isinstance(held, Granted):
            reserving.settle(str(number), amount, now_ms)
        obstacle = taking.take(amount, now_ms)
        assert obstacle == (None if isinstance(held, Granted) else held)
        assert taking.state(now_ms) == reserving.state(now_ms)
