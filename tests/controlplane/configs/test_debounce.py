from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.configs.debounce import Debounce

QUIET, LONGEST = 0.1, 1.0


def test_nothing_waits_before_a_write_and_after_publishing() -> None:
    debounce = Debounce(QUIET, LONGEST)
    assert debounce.wait_seconds(5.0) is None
    debounce.saw(5.0)
    debounce.clear()
    assert debounce.wait_seconds(6.0) is None


def test_a_single_write_is_published_after_the_quiet_time() -> None:
    debounce = Debounce(QUIET, LONGEST)
    debounce.saw(5.0)
    assert debounce.wait_seconds(5.04) == pytest.approx(0.06)
    assert debounce.wait_seconds(5.2) == 0


@given(st.lists(st.floats(0.0, 0.09), min_size=1, max_size=60))
def test_a_burst_waits_for_quiet_but_never_longer_than_the_longest(gaps: list[float]) -> None:
    debounce = Debounce(QUIET, LONGEST)
    now = first = 100.0
    debounce.saw(now)
    for gap in gaps:
        now += gap
        wait = debounce.wait_seconds(now)
        assert wait is not None
        assert now + wait <= first + LONGEST + 1e-9 or wait == 0
        debounce.saw(now)
    wait = debounce.wait_seconds(now)
    assert wait is not None
    assert wait <= QUIET
    assert debounce.wait_seconds(now + QUIET) == 0
