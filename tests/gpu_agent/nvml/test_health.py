from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_agent.nvml import health


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"power": 1, "temperature": "unsupported"}, "ok"),
        ({"power": 1, "temperature": "error"}, "ok"),
        ({"power": "error", "temperature": "unsupported"}, "error"),
        ({"power": 1, "temperature": "lost"}, "lost"),
        ({"power": "unsupported"}, "ok"),
    ],
)
def test_a_gpu_is_judged_by_what_it_answered(fields, state):
    assert health.state_of(fields) == state


STATES = st.sampled_from(["ok", "lost", "error", "unresponsive"])


@given(st.lists(STATES, min_size=1))
def test_every_change_is_told_once_and_nothing_else(states):
    told = [health.change(before, after) for before, after in itertools.pairwise(states)]
    changes = sum(before != after for before, after in itertools.pairwise(states))
    assert sum(change is not None for change in told) == changes


@given(st.floats(0.05, 3600), st.floats(0, 1))
def test_a_hung_gpu_is_called_so_within_three_intervals_of_its_hanging(interval, part):
    """It hangs somewhere between two asks; the second of them is never answered."""
    until_asked = part * interval
    assert until_asked + health.patience_seconds(interval) <= 3 * interval * (1 + 1e-9)
