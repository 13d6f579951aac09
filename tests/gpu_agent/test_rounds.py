from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_agent.rounds import next_due


@given(st.floats(0, 1e6), st.floats(-10, 1e5), st.floats(0.05, 3600))
def test_what_is_due_every_interval_keeps_its_beat_and_makes_up_for_nothing(due, late, interval):
    now = due + late
    following = next_due(due, now, interval)
    assert following > now or following == pytest.approx(now)
    assert following - max(now, due) <= interval * 1.000001
    beats = (following - due) / interval
    assert beats == pytest.approx(round(beats), abs=1e-3)
