"""What a gateway's collections find, and how little they look at."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from gateway.collector import Collector

HOUR_SECONDS = 3600


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    gc.unfreeze()


class Ring:
    def __init__(self) -> None:
        self.own = self


class Site:
    def __init__(self) -> None:
        self.now = 0.0
        self.running: list[int] = []
        self.collector = Collector(self.running, lambda: self.now)

    def turn(self, running: int, seconds: float = 10) -> None:
        self.now += seconds
        self.running[:] = range(running)
        self.collector.turn()


def dropped(ring: Ring | None = None) -> weakref.ref[Ring]:
    """One that nobody holds any more but itself."""
    return weakref.ref(ring or Ring())


@pytest.mark.parametrize("running", [0, 2_000])
def test_a_new_ring_is_found_however_many_requests_run(running: int):
    ring = dropped()
    Site().turn(running)
    assert ring() is None


def test_however_much_has_become_old_a_turn_looks_at_what_is_young():
    looked_at: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            looked_at.append(info["generation"])

    site = Site()
    gc.disable()
    gc.callbacks.append(note)
    try:
        site.turn(running=1, seconds=HOUR_SECONDS)
        site.turn(running=0)
        site.turn(running=0)
    finally:
        gc.callbacks.remove(note)
        gc.enable()
    assert looked_at == [1, 2, 1], "everything once, when nothing ran"


def test_what_has_stayed_is_looked_at_no_more():
    site = Site()
    kept = [Ring() for _ in range(10_000)]
    site.turn(running=1)
    assert len(gc.get_objects()) < len(kept) / 10


def test_a_ring_that_has_stayed_is_found_within_the_hour_when_nothing_runs():
    site = Site()
    held = [Ring()]
    site.turn(running=1)
    ring = dropped(held.pop())
    site.turn(running=0)
    assert ring() is not None
    site.turn(running=1, seconds=HOUR_SECONDS)
    assert ring() is not None, "a request would wait for it"
    site.turn(running=0)
    assert ring() is None


def test_everything_is_looked_at_once_an_hour_alone():
    site = Site()
    site.turn(running=0, seconds=HOUR_SECONDS)
    held = [Ring()]
    site.turn(running=0)
    ring = dropped(held.pop())
    site.turn(running=0, seconds=HOUR_SECONDS - 20)
    assert ring() is not None
    site.turn(running=0)
    assert ring() is None
