"""How many series of each writer are active, counted in bounded memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.telemetry import active_series
from controlplane.telemetry.active_series import IDLE_SECONDS, ActiveSeries, hashes_of
from controlplane.telemetry.store.columns import Ints
from controlplane.telemetry.store.writer import Owner
from wire.write_body import key_of

N1, N2 = Owner("node", "n-1"), Owner("node", "n-2")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def some(*numbers: int) -> Ints:
    return np.array(numbers, np.int64)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def active(clock: Clock) -> ActiveSeries:
    return ActiveSeries(clock)


def test_series_count_once_however_often_they_come(active):
    assert active.add(N1, some(5, -3, 5), 10) == 2
    assert active.add(N1, some(5, 7), 10) == 3
    assert active.note(N1, some(7, 1, -3, 5)).tolist() == [True, False, True, True]


def test_each_writer_has_its_own(active):
    active.add(N1, some(1, 2), 2)
    assert not active.note(N2, some(1, 2)).any()
    assert active.add(N2, some(1, 2), 2) == 2


def test_of_more_than_the_limit_none_is_added(active):
    active.add(N1, some(1, 2), 3)
    assert active.add(N1, some(3, 4), 3) == 4
    assert active.note(N1, some(1, 2, 3, 4)).tolist() == [True, True, False, False]
    assert active.add(N1, some(3), 3) == 3


def test_an_idle_series_gives_its_room_to_another(active, clock):
    active.add(N1, some(1, 2), 2)
    clock.now += IDLE_SECONDS - 1
    active.note(N1, some(1))
    assert active.add(N1, some(3), 2) == 3
    clock.now += 1
    assert active.add(N1, some(3), 2) == 2
    assert active.note(N1, some(1, 2, 3)).tolist() == [True, False, True]


def test_the_memory_of_a_writer_that_is_gone_is_given_back(active, clock):
    tracemalloc.start()
    try:
        active.add(N1, np.arange(1_000_000), 1_000_000)
        held, _ = tracemalloc.get_traced_memory()
        # 12 bytes each.
        assert 12_000_000 <= held < 13_000_000
        clock.now += IDLE_SECONDS
        active.add(N2, some(1), 1)
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


def test_with_too_many_of_all_writers_the_others_are_counted_anew(active, monkeypatch):
    monkeypatch.setattr(active_series, "REMEMBERED_MAX", 4)
    active.add(N1, some(1, 2), 4)
    active.add(N2, some(1, 2), 4)
    assert active.note(N1, some(1, 2)).all()
    active.add(N2, some(3), 4)
    assert not active.note(N1, some(1, 2)).any()
    assert active.note(N2, some(1, 2, 3)).all()


# Body after body: how long after the one before, by which of two writers, which series.
BODIES = st.lists(
    st.tuples(st.sampled_from([0, 60, IDLE_SECONDS // 2, IDLE_SECONDS]), st.sampled_from([N1, N2]),
              st.lists(st.integers(0, 9), max_size=6)), max_size=30)  # fmt: skip


@given(BODIES, st.integers(1, 8))
def test_it_counts_as_a_table_of_every_series_would(bodies, series_max):
    clock = Clock()
    active = ActiveSeries(clock)
    seen: dict[tuple[Owner, int], float] = {}
    for seconds, owner, series in bodies:
        clock.now += seconds
        seen = {key: at for key, at in seen.items() if clock.now - at < IDLE_SECONDS}
        hashes = some(*series)
        known = active.note(owner, hashes)
        assert known.tolist() == [(owner, number) in seen for number in series]
        expected = {number for who, number in seen if who == owner} | set(series)
        count = active.add(owner, hashes[~known], series_max)
        assert count == len(expected)
        seen |= {
            (owner, number): clock.now
            for number, was_known in zip(series, known.tolist(), strict=True)
            if was_known or count <= series_max
        }


def test_a_series_hash_tells_labels_apart():
    labels = [{"__name__": name, "node": "n-1", **more} for name in "ab" for more in ({}, {"gpu": "1"}, {"gpu": "2"})]
    assert len(np.unique(hashes_of([key_of(each) for each in labels * 2]))) == len(labels)
