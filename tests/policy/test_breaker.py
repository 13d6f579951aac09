"""The breaker's state machine cannot skip a state, jam, or forget an override."""

from __future__ import annotations

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


class AnyOutcomes(RuleBasedStateMachine):
    ALLOWED = frozenset({("closed", "open"), ("open", "half_open"), ("half_open", "closed"), ("half_open", "open")})

    @initialize()
    def begin(self) -> None:
        self.breaker = Breaker(THRESHOLDS)
        self.now_ms = 0
        self.seen: State = "closed"
        self.opened_at_ms = 0
        self.permits: list[tuple[State, Permit]] = []

    def observe(self) -> None:
        state = self.breaker.state(self.now_ms)
        if state != self.seen:
            assert (self.seen, state) in self.ALLOWED
            if state == "open":
                self.opened_at_ms = self.now_ms
            if self.seen == "open":
                assert self.now_ms >= self.opened_at_ms + THRESHOLDS.cooldown_ms
            self.seen = state
            self.permits = [(given_in, permit) for given_in, permit in self.permits if given_in != state]

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
            outstanding = [given_in for given_in, _ in self.permits].count("half_open")
            assert outstanding + (permit is not None) <= THRESHOLDS.half_open_probes
        if permit is not None:
            self.permits.append((self.seen, permit))

    @precondition(lambda self: self.permits)
    @rule(data=st.data(), outcome=st.sampled_from(["success", "failure", "ignored"]))
    def end(self, data: st.DataObject, outcome: Outcome) -> None:
        place = data.draw(st.integers(0, len(self.permits) - 1))
        _, permit = self.permits.pop(place)
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
