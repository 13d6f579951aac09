from __future__ import annotations

import pytest

from bench.quota_race import TOKENS_A_MINUTE, TOKENS_A_REQUEST, passed

ALLOWED_AT_ONCE = TOKENS_A_MINUTE // TOKENS_A_REQUEST


def test_the_whole_limit_at_once_is_not_over_it():
    told = passed([0.0] * ALLOWED_AT_ONCE, 0.0, 60.0)
    assert told == (0, 50.0)


@pytest.mark.parametrize("at", [0.0, 30.0])
def test_one_request_more_is_over_by_its_tokens_at_that_moment(at: float):
    refilled = int(TOKENS_A_MINUTE * at / 60) // TOKENS_A_REQUEST
    arrivals = [0.0] * ALLOWED_AT_ONCE + [at] * (refilled + 1)
    assert passed(arrivals, 0.0, 60.0).tokens_over_limit == TOKENS_A_REQUEST


def test_what_was_over_at_a_moment_is_not_made_good_later():
    arrivals = [0.0] * (ALLOWED_AT_ONCE + 5)
    assert passed(arrivals, 0.0, 600.0).tokens_over_limit == 5 * TOKENS_A_REQUEST
