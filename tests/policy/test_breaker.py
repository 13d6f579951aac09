"""The breaker's state machine cannot skip a state, jam, or forget an override."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from policy.breaker import Breaker, Outcome, Permit, State, held_override, turns
from wire.snapshot import BreakerThresholds, Override

THRESHOLDS = BreakerThresholds(
    error_permille=500, minimum_requests=4, window_ms=1_000, cooldown_ms=300, half_open_probes=2
)


def repeated(outcome: Outcome, times: int) -> list[Outcome]:
    return [outcome] * times


def permitted(breaker: Breaker, now_ms: int) -> Permit:
    permit = breaker.permit(now_ms)
    assert permit is not None
    return permit


def run(breaker: Breaker, now_ms: int, *outcomes: Outcome) -> State:
    for outcome in outcomes:
        breaker.record(permitted(breaker, now_ms), outcome, now_ms)
    return breaker.state(now_ms)


def opened(now_ms: int = 0) -> Breaker:
    breaker = Breaker(THRESHOLDS)
    assert run(breaker, now_ms, *repeated("failure", 4)) == "open"
    return breaker


def test_few_requests_open_nothing_however_bad():
    assert run(Breaker(THRESHOLDS), 0, "failure", "failure", "failure") == "closed"


def test_the_error_ratio_must_pass_the_threshold():
    assert run(Breaker(THRESHOLDS), 0, "success", "success", "failure", "failure") == "closed"
    assert run(Breaker(THRESHOLDS), 0, "success", "failure", "failure", "failure") == "open"


def test_failures_that_left_the_window_do_not_count():
    breaker = Breaker(THRESHOLDS)
    run(breaker, 0, "failure", "failure", "failure")
    assert run(breaker, 1_500, "failure") == "closed"


def test_it_holds_back_until_the_cooldown_then_lets_probes_through():
    breaker = opened()
    assert (breaker.permit(299), breaker.retry_in_ms(100)) == (None, 200)
    first, second = permitted(breaker, 300), permitted(breaker, 300)
    assert breaker.permit(300) is None
    breaker.record(first, "success", 310)
    assert breaker.state(310) == "half_open"
    breaker.record(second, "success", 320)
    assert breaker.state(320) == "closed"


def test_one_failed_probe_opens_again_for_a_whole_cooldown():
    breaker = opened()
    assert run(breaker, 300, "success", "failure") == "open"
    assert breaker.state(599) == "open"
    assert breaker.state(600) == "half_open"


def test_a_probe_whose_client_left_is_given_again():
    breaker = opened()
    assert run(breaker, 300, *repeated("ignored", 10)) == "half_open"
    assert run(breaker, 300, "success", "success") == "closed"


def test_probes_that_say_nothing_for_a_cooldown_keep_no_others_out():
    breaker = opened()
    lost = [permitted(breaker, 300), permitted(breaker, 310)]
    assert not breaker.may_try(609)
    assert breaker.may_try(610)
    assert run(breaker, 610, "success", "success") == "closed"
    for permit in lost:
        breaker.record(permit, "failure", 620)
    assert breaker.state(620) == "closed", "they count no more"


def test_lost_probes_whose_clients_leave_after_all_let_no_more_in_than_may():
    breaker = opened()
    lost = [permitted(breaker, 300) for _ in range(2)]
    permitted(breaker, 600)
    for permit in lost:
        breaker.record(permit, "ignored", 600)
    assert [breaker.permit(600) is not None for _ in range(2)] == [True, False]


def test_a_permit_says_whether_it_is_a_probe():
    breaker = opened()
    assert permitted(breaker, 300).probe_round
    breaker.close_with_others(300)
    assert not permitted(breaker, 300).probe_round


def test_outcomes_of_requests_from_before_it_opened_do_not_count_as_probes():
    breaker = Breaker(THRESHOLDS)
    old = [permitted(breaker, 0) for _ in range(3)]
    run(breaker, 0, *repeated("failure", 4))
    assert breaker.state(300) == "half_open"
    for permit in old:
        breaker.record(permit, "failure", 300)
    assert breaker.state(300) == "half_open"


def test_fewer_probes_asked_for_while_half_open_do_not_jam_it():
    breaker = opened()
    run(breaker, 300, "success")
    one = BreakerThresholds(
        error_permille=500, minimum_requests=4, window_ms=1_000, cooldown_ms=300, half_open_probes=1
    )
    breaker.configure(one)
    assert breaker.state(300) == "closed"


def test_a_window_of_another_length_starts_anew():
    breaker = Breaker(THRESHOLDS)
    run(breaker, 0, *repeated("failure", 3))
    longer = BreakerThresholds(error_permille=500, minimum_requests=4, window_ms=60_000)
    breaker.configure(longer)
    assert run(breaker, 0, "failure") == "closed"


def test_timeouts_have_a_share_of_their_own():
    """Half of them late are no more errors than before, and over half open it."""
    limits = msgspec.structs.replace(THRESHOLDS, error_permille=0, timeout_permille=500)
    assert run(Breaker(limits), 0, "success", "success", "timeout", "timeout") == "closed"
    assert run(Breaker(limits), 0, "success", "timeout", "timeout", "timeout") == "open"
    assert run(Breaker(limits), 0, "timeout", "success", "success", "failure") == "open"


def test_a_late_probe_is_none_that_went_well():
    assert run(opened(), 300, "timeout") == "open"


def test_what_another_gateway_saw_opens_it_and_nothing_shortens_that():
    breaker = Breaker(THRESHOLDS)
    breaker.hold_open(250, 0)
    assert (breaker.state(249), breaker.state(250)) == ("open", "half_open")
    breaker.hold_open(500, 250)
    breaker.hold_open(400, 260)
    assert breaker.retry_in_ms(260) == 240
    breaker.hold_open(10**9, 270)
    assert breaker.retry_in_ms(270) == THRESHOLDS.cooldown_ms, "no clock of another's keeps it longer than its own"
    breaker.hold_open(200, 270)
    assert breaker.retry_in_ms(270) == THRESHOLDS.cooldown_ms


def test_news_that_are_over_open_nothing():
    breaker = Breaker(THRESHOLDS)
    breaker.hold_open(100, 100)
    assert breaker.state(100) == "closed"


def test_probes_of_another_gateway_close_it_once_its_own_cooldown_is_over():
    breaker = opened()
    breaker.close_with_others(299)
    assert breaker.state(299) == "open"
    breaker.close_with_others(300)
    assert breaker.state(300) == "closed"


def test_requests_from_before_another_opened_it_do_not_count_as_probes():
    breaker = Breaker(THRESHOLDS)
    before = permitted(breaker, 0)
    breaker.hold_open(100, 0)
    assert breaker.state(100) == "half_open"
    breaker.record(before, "failure", 100)
    assert breaker.state(100) == "half_open"


class AnyOutcomes(RuleBasedStateMachine):
    ALLOWED = frozenset({("closed", "open"), ("open", "half_open"), ("half_open", "closed"), ("half_open", "open")})

    @initialize()
    def begin(self) -> None:
        self.breaker = Breaker(THRESHOLDS)
        self.now_ms = 0
        self.seen: State = "closed"
        self.opened_at_ms = 0
        self.permits: list[tuple[State, int, Permit]] = []

    def observe(self, told: bool = False) -> None:
        """`told`: by another gateway, whose cooldown may be over sooner."""
        state = self.breaker.state(self.now_ms)
        if state != self.seen:
            assert (self.seen, state) in self.ALLOWED
            if state == "open":
                self.opened_at_ms = self.now_ms
                self.cooldown_ms = 0 if told else THRESHOLDS.cooldown_ms
            if self.seen == "open":
                assert self.now_ms >= self.opened_at_ms + self.cooldown_ms
            self.seen = state
            self.permits = [given for given in self.permits if given[0] != state]

    @rule(ms=st.integers(0, 500))
    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.observe()

    @rule()
    def ask(self) -> None:
        permit = self.breaker.permit(self.now_ms)
        self.observe()
        if self.seen == "open":
            assert permit is None
        elif self.seen == "closed":
            assert permit is not None
        else:
            # Older ones may be lost.
            since_ms = self.now_ms - THRESHOLDS.cooldown_ms
            outstanding = sum(state == "half_open" and at_ms > since_ms for state, at_ms, _ in self.permits)
            assert outstanding + (permit is not None) <= THRESHOLDS.half_open_probes
        if permit is not None:
            self.permits.append((self.seen, self.now_ms, permit))

    @rule(for_ms=st.integers(-100, 600))
    def hear_that_another_opened(self, for_ms: int) -> None:
        left_ms = self.breaker.retry_in_ms(self.now_ms)
        self.breaker.hold_open(self.now_ms + for_ms, self.now_ms)
        assert self.breaker.retry_in_ms(self.now_ms) >= left_ms, "a second cooldown shortens no first one"
        self.observe(told=True)

    @rule()
    def hear_that_another_closed(self) -> None:
        left_ms = self.breaker.retry_in_ms(self.now_ms)
        self.breaker.close_with_others(self.now_ms)
        assert self.breaker.retry_in_ms(self.now_ms) == left_ms
        self.observe()

    @precondition(lambda self: self.permits)
    @rule(data=st.data(), outcome=st.sampled_from(["success", "failure", "timeout", "ignored"]))
    def end(self, data: st.DataObject, outcome: Outcome) -> None:
        place = data.draw(st.integers(0, len(self.permits) - 1))
        _, _, permit = self.permits.pop(place)
        self.breaker.record(permit, outcome, self.now_ms)
        self.observe()

    @invariant()
    def it_never_jams(self) -> None:
        """Whatever happened, time and good probes close it."""
        if not hasattr(self, "breaker"):
            return
        assert self.breaker.retry_in_ms(self.now_ms) <= THRESHOLDS.cooldown_ms


TestAnyOutcomes = AnyOutcomes.TestCase

OVERRIDES = st.lists(
    st.builds(
        Override,
        subject_kind=st.just("engine"),
        subject=st.just("e"),
        state=st.sampled_from(["open", "closed"]),
        owner=st.just("o"),
        reason=st.just("r"),
        expires_at_ms=st.integers(0, 20),
    ),
    max_size=6,
)


@given(OVERRIDES, st.integers(0, 20))
def test_the_strictest_unexpired_override_holds(overrides: list[Override], now_ms: int):
    held = held_override(overrides, now_ms)
    live = [override for override in overrides if override.expires_at_ms > now_ms]
    if held is None:
        assert not live
    else:
        assert held in live
        assert held.state == ("open" if any(override.state == "open" for override in live) else "closed")


def test_when_the_strictest_expires_the_next_holds_then_none():
    def override(state: State, expires_at_ms: int) -> Override:
        return Override("pool", "p", "open" if state == "open" else "closed", "o", "r", expires_at_ms)

    rows = [override("closed", 30), override("open", 10), override("open", 20)]
    held = [held_override(rows, now_ms) for now_ms in (0, 10, 20, 30)]
    assert [row and (row.state, row.expires_at_ms) for row in held] == [
        ("open", 20),
        ("open", 20),
        ("closed", 30),
        None,
    ]


@given(OVERRIDES, st.integers(0, 20))
def test_turns_say_what_holds_at_every_moment_from_now_on(overrides: list[Override], now_ms: int):
    found = turns({f"o{number}": override for number, override in enumerate(overrides)}, now_ms)
    for moment_ms in range(now_ms, 22):
        held = held_override(overrides, moment_ms)
        now = [turn for turn in found if turn.from_ms <= moment_ms < turn.override.expires_at_ms]
        assert [turn.override for turn in now] == ([] if held is None else [held])
        assert all(overrides[int(turn.name.removeprefix("o"))] == turn.override for turn in now)
