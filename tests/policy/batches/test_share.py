"""Tenants take turns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policy.batches.share import shared_out

counts = st.dictionaries(st.sampled_from("abcde"), st.integers(0, 30))


@given(waiting=counts, running=counts, lines=st.integers(0, 60))
def test_nothing_is_left_while_somebody_waits_and_nobody_gets_ahead(
    waiting: dict[str, int], running: dict[str, int], lines: int
) -> None:
    given_out = shared_out(waiting, running, lines)
    assert sum(given_out.values()) == min(lines, sum(waiting.values()))
    assert all(0 <= given_out[tenant] <= count for tenant, count in waiting.items())
    has = {tenant: running.get(tenant, 0) + count for tenant, count in given_out.items()}
    for tenant, count in waiting.items():
        if given_out[tenant] < count:
            # Who still waits is behind nobody who got one, but for the last turn.
            assert all(has[other] <= has[tenant] + 1 for other in waiting if given_out[other])
