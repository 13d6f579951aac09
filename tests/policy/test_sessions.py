"""Sessions: nothing passes a ceiling, what runs is counted, and a closed one stays closed until it is left alone."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.sessions import NOTHING, Admitted, Call, Ended, Session, Spent, judge, near_ceilings
from wire.snapshot import SessionLimits

CALL = Call(prompt_tokens=100, output_tokens=50)


def test_without_limits_every_call_runs_as_it_asks():
    assert judge(SessionLimits(), Spent(10**6, 10**9, 10**9), NOTHING, CALL) == Admitted(50, Spent(1, 150, 0))


def test_the_last_allowed_call_runs_and_the_next_one_does_not():
    limits = SessionLimits(max_iterations=2)
    assert isinstance(judge(limits, Spent(iterations=1), NOTHING, CALL), Admitted)
    ended = judge(limits, Spent(iterations=2), NOTHING, CALL)
    assert ended == Ended("iterations", asked=1, used=2, running=0, limit=2, closes=True)


def test_an_answer_is_made_no_longer_than_what_is_left():
    limits = SessionLimits(max_tokens=1000)
    assert judge(limits, Spent(tokens=880), NOTHING, CALL) == Admitted(20, Spent(1, 120, 0))
    both = CALL._replace(sequences=2)
    assert judge(limits, Spent(tokens=880), NOTHING, both) == Admitted(10, Spent(1, 120, 0))


def test_a_prompt_that_leaves_no_token_for_each_answer_closes_the_session():
    ended = judge(SessionLimits(max_tokens=1000), Spent(tokens=900), NOTHING, CALL)
    assert ended == Ended("tokens", asked=101, used=900, running=0, limit=1000, closes=True)


def test_what_only_running_calls_may_use_up_closes_nothing():
    ended = judge(SessionLimits(max_tokens=1000), Spent(tokens=500), Spent(1, 450, 0), CALL)
    assert ended == Ended("tokens", asked=101, used=500, running=450, limit=1000, closes=False)


def test_a_call_that_generates_nothing_needs_its_prompt_alone():
    assert judge(SessionLimits(max_tokens=100), NOTHING, NOTHING, Call(100, 0)) == Admitted(0, Spent(1, 100, 0))


def test_the_dearer_ceiling_decides_how_long_an_answer_may_be():
    call = Call(100, 50, prompt_cost_micros=2, output_cost_micros=10)
    assert judge(SessionLimits(max_cost_micros=500), NOTHING, NOTHING, call) == Admitted(30, Spent(1, 130, 500))
    ended = judge(SessionLimits(max_cost_micros=209), NOTHING, NOTHING, call)
    assert ended == Ended("cost", asked=210, used=0, running=0, limit=209, closes=True)


def test_a_ceiling_of_no_cost_at_all_lets_free_models_through():
    assert isinstance(judge(SessionLimits(max_cost_micros=0), NOTHING, NOTHING, CALL), Admitted)


def test_depth_refuses_the_call_and_leaves_the_session_open():
    limits = SessionLimits(max_depth=2)
    assert isinstance(judge(limits, NOTHING, NOTHING, CALL._replace(depth=2)), Admitted)
    session = Session(0)
    ended = session.take(limits, CALL._replace(depth=3))
    assert isinstance(ended, Ended)
    assert (ended.ceiling, ended.asked, ended.limit) == ("depth", 3, 2)
    assert isinstance(session.take(limits, CALL), Admitted)


def test_the_third_same_call_running_closes_the_session():
    limits = SessionLimits(max_repeated_calls=3)
    session = Session(0)
    assert isinstance(session.take(limits, CALL._replace(repeated=2)), Admitted)
    assert isinstance(session.take(limits, CALL._replace(repeated=3)), Ended)
    ended = session.take(limits, CALL)
    assert isinstance(ended, Ended)
    assert ended.ceiling == "repeated_call"


def test_a_closed_session_takes_no_smaller_call_either():
    limits = SessionLimits(max_tokens=1000)
    session = Session(0, used=Spent(1, 950, 0))
    assert isinstance(session.take(limits, CALL), Ended)
    assert isinstance(session.take(limits, Call(1, 1)), Ended)


def test_a_moved_ceiling_opens_a_closed_session():
    session = Session(0, used=Spent(2, 0, 0))
    assert isinstance(session.take(SessionLimits(max_iterations=2), CALL), Ended)
    assert isinstance(session.take(SessionLimits(max_iterations=3), CALL), Admitted)


def test_a_session_is_idle_by_its_last_use_and_never_while_a_call_runs():
    session = Session(last_used_ms=1_000)
    assert not session.is_idle(500, 1_499)
    assert session.is_idle(500, 1_500)
    admitted = session.take(SessionLimits(), CALL)
    assert isinstance(admitted, Admitted)
    assert not session.is_idle(500, 10_000)
    session.settle(admitted.reserved, NOTHING, 10_000)
    assert not session.is_idle(500, 10_499)
    assert session.is_idle(500, 10_500)


def test_four_fifths_of_a_limit_is_near_it():
    limits = SessionLimits(max_iterations=10, max_tokens=1000, max_cost_micros=50)
    assert list(near_ceilings(limits, Spent(7, 799, 39))) == []
    assert list(near_ceilings(limits, Spent(8, 800, 40))) == ["iterations", "tokens", "cost"]
    assert list(near_ceilings(SessionLimits(), Spent(8, 800, 40))) == []


def test_a_running_call_may_take_more_only_where_there_is_room_for_it():
    limits = SessionLimits(max_tokens=1000, max_cost_micros=50)
    session = Session(0, used=Spent(1, 500, 20), running=Spent(1, 300, 10))
    assert not session.take_more(limits, Spent(0, 201, 0))
    assert not session.take_more(limits, Spent(0, 0, 21))
    assert session.take_more(limits, Spent(0, 200, 20))
    assert session.running == Spent(1, 500, 30)


_LIMITS = st.builds(
    SessionLimits,
    max_iterations=st.just(msgspec.UNSET) | st.integers(1, 8),
    max_tokens=st.just(msgspec.UNSET) | st.integers(1, 2_000),
    max_cost_micros=st.just(msgspec.UNSET) | st.integers(0, 5_000),
)
_CALLS = st.builds(
    Call,
    prompt_tokens=st.integers(0, 500),
    output_tokens=st.integers(0, 300),
    sequences=st.integers(1, 3),
    prompt_cost_micros=st.integers(0, 3),
    output_cost_micros=st.integers(0, 9),
)


@given(_LIMITS, st.lists(st.tuples(_CALLS, st.integers(0, 1000), st.integers(0, 4)), max_size=30))
def test_no_order_of_calls_side_by_side_passes_a_ceiling(limits: SessionLimits, plan: list[tuple[Call, int, int]]):
    """Each call settles on some share of what it reserved, after some others have begun."""
    session = Session(0)
    running: list[tuple[int, Call, Admitted, int]] = []
    for number, (call, permille, lasts) in enumerate(plan):
        for entry in [entry for entry in running if entry[0] <= number]:
            _settle(session, entry)
            running.remove(entry)
        verdict = session.take(limits, call)
        if isinstance(verdict, Admitted):
            assert verdict.output_tokens <= call.output_tokens
            assert (verdict.output_tokens > 0) == (call.output_tokens > 0)
            running.append((number + lasts, call, verdict, permille))
        total = session.used.plus(session.running)
        assert total.iterations <= _or_endless(limits.max_iterations)
        assert total.tokens <= _or_endless(limits.max_tokens)
        assert total.cost_micros <= _or_endless(limits.max_cost_micros)
    for entry in running:
        _settle(session, entry)
    assert session.running == NOTHING


def _settle(session: Session, entry: tuple[int, Call, Admitted, int]) -> None:
    _, call, admitted, permille = entry
    output_tokens = admitted.output_tokens * call.sequences * permille // 1000
    session.settle(admitted.reserved, call.taken(call.prompt_tokens, output_tokens), 0)


def _or_endless(limit: int | msgspec.UnsetType) -> float:
    return float("inf") if limit is msgspec.UNSET else limit


@pytest.mark.parametrize("used", [NOTHING, Spent(3, 4, 5)])
def test_spent_adds_and_takes_away(used: Spent):
    assert used.plus(Spent(1, 2, 3)).less(Spent(1, 2, 3)) == used
