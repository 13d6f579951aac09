"""What an answer that nobody saw is taken for: what others took in the time that it ran."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.output_pace import OutputPace

ANSWERS = st.lists(st.tuples(st.integers(1, 10_000), st.integers(1, 600_000)), min_size=1, max_size=200)


def test_before_any_answer_nothing_is_known() -> None:
    assert OutputPace().tokens_in(60_000) == 0


def test_of_one_answer_half_the_time_is_half_the_tokens() -> None:
    pace = OutputPace()
    pace.learn(100, 2_000)
    assert [pace.tokens_in(ms) for ms in (0, 1_000, 2_000, 4_000)] == [0, 50, 100, 200]


@given(ANSWERS, st.integers(0, 600_000))
def test_it_lies_between_the_slowest_and_the_fastest_that_were_seen(answers: list[tuple[int, int]], ms: int) -> None:
    pace = OutputPace()
    for tokens, took_ms in answers:
        pace.learn(tokens, took_ms)
    rates = [tokens / took_ms for tokens, took_ms in answers]
    assert min(rates) * ms - 1.001 <= pace.tokens_in(ms) <= max(rates) * ms * 1.000001 + 0.001


@given(ANSWERS)
def test_a_pool_that_has_become_faster_is_soon_taken_to_be(answers: list[tuple[int, int]]) -> None:
    pace = OutputPace()
    for tokens, took_ms in answers:
        pace.learn(tokens, took_ms)
    for _ in range(1_500):
        pace.learn(1_000, 1_000)
    assert pace.tokens_in(1_000) == pytest.approx(1_000, rel=0.01)


@pytest.mark.parametrize(("tokens", "took_ms"), [(0, 1_000), (5, 0), (5, -1), (-1, 5)])
def test_an_answer_without_tokens_or_time_says_nothing(tokens: int, took_ms: int) -> None:
    pace = OutputPace()
    pace.learn(10, 1_000)
    pace.learn(tokens, took_ms)
    assert pace.tokens_in(1_000) == 10
