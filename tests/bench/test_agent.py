"""How late the benchmark of the agent finds samples to be."""

from __future__ import annotations

import pytest

from bench.agent import INTERVAL_SECONDS, LATE_PERCENT, USUAL_PERCENT, Arrival, delays

INTERVAL_MS = int(INTERVAL_SECONDS * 1000)


def arrivals(part, late_ms, age_ms, count=40):
    """Each reading that much later than an interval after the one before, and taken at that age."""
    read_ms = range(0, count * (INTERVAL_MS + late_ms), INTERVAL_MS + late_ms)
    return [Arrival(part, at_ms, at_ms + age_ms) for at_ms in read_ms]


def test_gpus_and_engines_are_each_as_late_as_theirs_are():
    assert delays(arrivals("gpu0", late_ms=20, age_ms=70) + arrivals("e0", late_ms=5, age_ms=90), USUAL_PERCENT) == {
        "gpus_read_late_ms": 20,
        "gpus_age_when_taken_ms": 70,
        "engines_read_late_ms": 5,
        "engines_age_when_taken_ms": 90,
    }


@pytest.mark.parametrize(("parts_late", "seen"), [(1, 0), (4, 300)])
def test_a_delay_shows_once_it_is_of_more_than_one_in_twenty(parts_late, seen):
    found = []
    for place in range(10):
        readings = arrivals(f"gpu{place}", late_ms=0, age_ms=50, count=7)
        # One reading of it stands still, as while others wait for one that hangs.
        late_ms = 300 if place < parts_late else 0
        found += readings[:3] + [Arrival(part, at + late_ms, arrived + late_ms) for part, at, arrived in readings[3:]]
    found += arrivals("e0", late_ms=0, age_ms=50)
    assert delays(found, LATE_PERCENT)["gpus_read_late_ms"] == seen
