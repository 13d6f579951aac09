"""A request meets its SLO if it kept every promised time that is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from policy.slo import Seen, Slo, met, promised
from wire.snapshot import Pool, PriorityClass

times = st.none() | st.integers(0, 10_000)
promises = st.just(UNSET) | st.integers(0, 10_000)


@pytest.mark.parametrize(
    ("slo", "seen", "verdict"),
    [
        (Slo(), Seen(1, 1, 1), None),
        (Slo(ttft_ms=100), Seen(ttft_ms=100, e2e_ms=9000), True),
        (Slo(ttft_ms=100), Seen(ttft_ms=100.1), False),
        (Slo(ttft_ms=100, tpot_ms=50), Seen(ttft_ms=10, tpot_ms=60), False),
        (Slo(ttft_ms=100, tpot_ms=50), Seen(ttft_ms=10, tpot_ms=None), True),
        (Slo(ttft_ms=100), Seen(e2e_ms=10), None),
        (Slo(ttft_ms=100, e2e_ms=20), Seen(e2e_ms=10), True),
        (Slo(e2e_ms=0), Seen(e2e_ms=1), False),
    ],
)
def test_only_what_is_promised_and_known_is_judged(slo: Slo, seen: Seen, verdict: bool | None):
    assert met(slo, seen) is verdict


@given(st.tuples(promises, promises, promises), st.tuples(times, times, times), st.integers(0, 2))
def test_a_further_promise_never_turns_a_miss_into_a_hit(
    most: tuple[int, int, int], took: tuple[int | None, int | None, int | None], dropped: int
):
    strict, seen = Slo(*most), Seen(*took)
    lax = Slo(*(UNSET if place == dropped else value for place, value in enumerate(most)))
    assert met(strict, seen) is not True or met(lax, seen) is not False


def test_what_the_class_sets_goes_before_the_pool_field_by_field():
    pool = Pool(model="m", ttft_slo_ms=100, tpot_slo_ms=50)
    assert promised(pool, None) == Slo(ttft_ms=100, tpot_ms=50)
    strict = PriorityClass(rank=0, ttft_slo_ms=0, e2e_slo_ms=900)
    assert promised(pool, strict) == Slo(ttft_ms=0, tpot_ms=50, e2e_ms=900)
    assert promised(Pool(model="m"), PriorityClass(rank=0)).promises is False
