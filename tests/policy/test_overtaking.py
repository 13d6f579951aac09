"""Small requests go past one that waits for room, and never so often that it starves."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.fairness import FairQueue, Waiting
from policy.overtaking import LOOK_AHEAD, Overtaking
from wire.snapshot import PriorityClass

CLASSES = {"gold": PriorityClass(rank=0), "bulk": PriorityClass(rank=3, ageing_ms=1_000)}


def asked(
    request_id: str, tokens: int, tenant: str = "a", priority_class: str = "gold", hold_from_ms: int | None = None
) -> Waiting:
    return Waiting(request_id, tenant, priority_class, tokens, 0, hold_from_ms)


def within(room: int) -> Callable[[Waiting, Waiting | None], bool]:
    """One place, with so much room: nothing else fits while room is held."""
    return lambda request, held_for: held_for is None and request.tokens <= room


def filled(*requests: Waiting, most: int = 2) -> Overtaking:
    queue = FairQueue(CLASSES, {})
    for request in requests:
        queue.push(request, 0)
    return Overtaking(queue, most)


def next_id(line: Overtaking, room: int, now_ms: int = 0) -> str | None:
    request = line.next(now_ms, within(room))
    return None if request is None else request.request_id


def test_where_all_fit_nothing_overtakes():
    line = filled(asked("long", 100), asked("short", 1))
    assert [next_id(line, 100) for _ in range(3)] == ["long", "short", None]


def test_what_fits_goes_past_what_does_not():
    line = filled(asked("long", 100), asked("longer", 200), asked("short", 1))
    assert next_id(line, 10) == "short"
    assert next_id(line, 10) is None


def test_after_so_many_none_goes_past():
    line = filled(asked("long", 100), *(asked(f"s{number}", 1) for number in range(5)), most=2)
    assert [next_id(line, 10) for _ in range(3)] == ["s0", "s1", None]
    assert next_id(line, 100) == "long"
    assert next_id(line, 10) == "s2"


def test_none_at_all_where_none_may():
    assert next_id(filled(asked("long", 100), asked("short", 1), most=0), 10) is None


def test_nor_once_half_of_its_time_is_over():
    line = filled(asked("long", 100, hold_from_ms=1_000), *(asked(f"s{number}", 1) for number in range(5)), most=99)
    assert next_id(line, 10, 999) == "s0"
    assert next_id(line, 10, 1_000) is None


def test_room_is_held_for_whoever_was_passed_even_behind_another_that_waits():
    """A newcomer of a better class that does not fit either is no way round what is held for the one before."""
    queue = FairQueue(CLASSES, {})
    line = Overtaking(queue, 1)
    queue.push(asked("long", 100, priority_class="bulk"), 0)
    queue.push(asked("s0", 1, priority_class="bulk"), 0)
    assert next_id(line, 10) == "s0"
    queue.push(asked("newcomer", 100), 0)
    queue.push(asked("s1", 1, priority_class="bulk"), 0)
    assert next_id(line, 10) is None
    # By order, not past anything.
    assert next_id(line, 100) == "newcomer"


def test_one_that_left_holds_nothing():
    queue = FairQueue(CLASSES, {})
    line = Overtaking(queue, 1)
    for request in (asked("long", 100), asked("s0", 1), asked("s1", 1)):
        queue.push(request, 0)
    assert next_id(line, 10) == "s0"
    assert next_id(line, 10) is None
    queue.remove("long")
    line.forget("long")
    assert next_id(line, 10) == "s1"


def test_only_so_many_are_looked_at():
    line = filled(*(asked(f"long{number:02}", 100) for number in range(LOOK_AHEAD)), asked("short", 1), most=99)
    assert next_id(line, 10) is None


def test_who_overtakes_is_charged_as_any():
    """A tenant gains nothing by sending small ones: what went past counts against its next."""
    queue = FairQueue({}, {})
    line = Overtaking(queue, 99)
    queue.push(asked("a-long", 100, "a", ""), 0)
    for number in range(10):
        queue.push(asked(f"b{number}", 10, "b", ""), 0)
        queue.push(asked(f"c{number}", 10, "c", ""), 0)
    order = [next_id(line, 10) or "" for _ in range(10)]
    assert [name[0] for name in order].count("b") == [name[0] for name in order].count("c") == 5


def test_a_class_keeps_the_turns_of_those_that_were_passed():
    """Past its bound nothing that came later goes before them, also where younger ones of the class went first."""
    queue = FairQueue(CLASSES, {})
    line = Overtaking(queue, 99)
    queue.push(asked("long", 100, "a", "bulk"), 0)
    queue.push(asked("short", 1, "b", "bulk"), 1_000)
    assert next_id(line, 10, 1_000) == "short"
    queue.push(asked("gold", 100, "g"), 2_500)
    # Three ranks at 1,000 ms each: by then its turn, of 0 ms, is older than gold's.
    assert next_id(line, 100, 3_000) == "long"


@dataclass
class Engines:
    """Engines with room, each running what it was given; `serve` gives as the gateway does."""

    free: list[int]
    capacities: list[int]
    running: list[tuple[int, int]] = field(default_factory=list)
    chosen: int = -1

    def fits(self, request: Waiting, held_for: Waiting | None) -> bool:
        kept = -1
        if held_for is not None:
            ever = [engine for engine, capacity in enumerate(self.capacities) if capacity >= held_for.tokens]
            kept = max(ever, key=lambda engine: self.free[engine])
        able = [engine for engine, free in enumerate(self.free) if free >= request.tokens and engine != kept]
        self.chosen = able[0] if able else -1
        return bool(able)

    def take(self, request: Waiting) -> None:
        self.free[self.chosen] -= request.tokens
        self.running.append((self.chosen, request.tokens))

    def end_one(self, number: int) -> None:
        engine, tokens = self.running.pop(number % len(self.running))
        self.free[engine] += tokens


lengths = st.lists(st.integers(1, 40), min_size=1, max_size=40)


@given(lengths, st.integers(1, 100), st.integers(0, 4), st.lists(st.integers(0, 99), min_size=200, max_size=200))
@settings(max_examples=100, deadline=None)
def test_at_one_engine_none_is_passed_more_often_than_it_may(sizes: list[int], room: int, most: int, ends: list[int]):
    """Of one tenant and class the order is that of arrival, so that every overtaking shows."""
    queue = FairQueue({}, {})
    line, engines = Overtaking(queue, most), Engines([max(room, *sizes)], [max(room, *sizes)])
    for number, tokens in enumerate(sizes):
        queue.push(asked(f"{number:03}", tokens, "a", ""), 0)
    passed = dict.fromkeys((f"{number:03}" for number in range(len(sizes))), 0)
    for step in ends:
        while (request := line.next(0, engines.fits)) is not None:
            engines.take(request)
            del passed[request.request_id]
            for other in passed:
                passed[other] += other < request.request_id
        assert all(times <= most for times in passed.values())
        if engines.running:
            engines.end_one(step)
    assert not passed, "as long as what runs ends, all are served"


@given(
    st.lists(st.tuples(st.integers(1, 12), st.sampled_from("abc")), min_size=10, max_size=60),
    st.lists(st.integers(12, 20), min_size=1, max_size=4),
    st.integers(0, 3),
    st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_the_largest_is_served_however_many_small_ones_keep_coming(
    sizes: list[tuple[int, str]], capacities: list[int], most: int, seed: int
):
    """On any engines: room held where there is most of it only grows, until the one that it is held for fits."""
    queue = FairQueue({}, {"a": 1, "b": 2, "c": 5})
    line, engines = Overtaking(queue, most), Engines([0] * len(capacities), capacities)
    for engine, capacity in enumerate(capacities):
        # All is taken by small ones.
        engines.running += [(engine, 1)] * capacity
    queue.push(asked("large", max(capacities), "a", ""), 0)
    waits = True
    pick = random.Random(seed).randrange
    for step in range(1_000):
        tokens, tenant = sizes[step % len(sizes)]
        if len(queue) < 20:
            queue.push(asked(f"s{step}", min(tokens, min(capacities)), tenant, ""), 0)
        while (request := line.next(0, engines.fits)) is not None:
            engines.take(request)
            waits = waits and request.request_id != "large"
        if not waits:
            return
        engines.end_one(pick(len(engines.running)))
    pytest.fail("it starves")


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 50)), min_size=5, max_size=5), st.integers(0, 2**32))
@settings(max_examples=10, deadline=None)
def test_weights_hold_with_overtaking(mix: list[tuple[str, int]], seed: int):
    """Two tenants that always have something that fits get what their weights say, within a few of the largest."""
    queue = FairQueue({}, {"a": 1, "b": 3})
    line, got = Overtaking(queue, 4), {"a": 0, "b": 0}
    for tenant in "ab":
        for number in range(8):
            queue.push(asked(f"{tenant}{number}", 1 + (seed + number * 7) % 50, tenant, ""), 0)
    for step in range(2_000):
        # Room for all, or for small ones alone.
        room = 50 if step % 3 == 0 else mix[step % 5][1]
        request = line.next(0, within(room))
        if request is None:
            continue
        got[request.tenant] += request.tokens
        queue.push(asked(f"{request.tenant}+{step}", 1 + (seed + step) % 50, request.tenant, ""), 0)
    assert got["b"] / got["a"] == pytest.approx(3, rel=0.25)
