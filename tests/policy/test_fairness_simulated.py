"""A saturated pool in simulated time: shares by weight, no starvation for any mix, and the bound of each class."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.fairness import FirstComeFirstServed, share
from bench.support.fairness import Load, simulate
from policy.ageing import waits_at_most_ms
from policy.fairness import FairQueue, Waiting
from wire.snapshot import PriorityClass

PLACES = 16
CLASSES = {
    "interactive": PriorityClass(rank=0, ageing_ms=5_000),
    "normal": PriorityClass(rank=1, ageing_ms=5_000),
    "bulk": PriorityClass(rank=4, ageing_ms=20_000),
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "weights", [{"short": 1, "long": 1}, {"short": 1, "long": 3}, {"short": 5, "long": 1, "middle": 2}], ids=str
)
def test_weights_hold_within_five_per_cent_under_saturation(weights: dict[str, int], seed: int):
    every = {"short": (6.0, 200, 100), "long": (1.0, 8_000, 1_000), "middle": (3.0, 1_000, 300)}
    loads = [Load(name, "", *every[name]) for name in weights]
    got = simulate(FairQueue({}, weights), loads, places=PLACES, seconds=7_200, seed=seed)
    for name, weight in weights.items():
        due = 100 * weight / sum(weights.values())
        assert share(got, name) == pytest.approx(due, rel=0.05)


def test_first_come_first_served_does_not_hold_them():
    """What the test above would say of a queue without fairness."""
    loads = [Load("short", "", 6.0, 200, 100), Load("long", "", 1.0, 8_000, 1_000)]
    got = simulate(FirstComeFirstServed(), loads, places=PLACES, seconds=1_800, seed=0)
    assert share(got, "short") != pytest.approx(50, rel=0.2)


mixes = st.lists(
    st.builds(
        Load,
        st.sampled_from(["a", "b", "c", "d"]),
        st.sampled_from([*CLASSES, ""]),
        st.floats(0.05, 2),
        st.integers(1, 10_000),
        st.integers(1, 1_000),
    ),
    min_size=2,
    max_size=6,
    unique_by=lambda load: (load.tenant, load.priority_class),
)


@given(mixes, st.dictionaries(st.sampled_from("abcd"), st.integers(1, 100)), st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_nobody_starves_whatever_the_mix(loads: list[Load], weights: dict[str, int], seed: int):
    """A flood of the best class beside it, each load that asks at all is served."""
    flood = Load("flood", "interactive", 6.0, 300, 100)
    got = simulate(FairQueue(CLASSES, weights), [flood, *loads], places=PLACES, seconds=600, seed=seed)
    for load in loads:
        # Of a few requests in the last minutes none need have come to its turn.
        if load.per_second >= 0.2:
            assert got[load.tenant, load.priority_class].waits_ms


class Turns:
    """A fair queue, and beside it what the bound says: past it no turn goes to a class for a later request."""

    def __init__(self) -> None:
        self._queue = FairQueue(CLASSES, {"a": 1, "b": 3})
        self._turns: dict[str, list[int]] = {name: [] for name in CLASSES}
        self.judged = 0

    def push(self, request: Waiting, now_ms: int) -> None:
        self._queue.push(request, now_ms)
        self._turns[request.priority_class].append(now_ms)

    def pop(self, now_ms: int) -> Waiting | None:
        request = self._queue.pop(now_ms)
        if request is None:
            assert not any(self._turns.values()), "a place stays free while some wait"
            return None
        taken_ms = self._turns[request.priority_class].pop(0)
        for name, turns in self._turns.items():
            bound_ms = waits_at_most_ms(CLASSES[name], CLASSES.values())
            assert bound_ms is not None
            if turns and now_ms - turns[0] >= bound_ms:
                assert taken_ms <= turns[0]
                self.judged += 1
        return request

    def charge(self, request: Waiting, output_tokens: int) -> None:
        self._queue.charge(request, output_tokens)


@pytest.mark.parametrize("seed", range(3))
def test_the_bound_of_each_class_holds_with_many_tenants_in_it(seed: int):
    loads = [
        Load(tenant, name, rate, 300, 100)
        for tenant in "abc"
        for name, rate in zip(CLASSES, (2, 0.3, 0.2), strict=True)
    ]
    queue = Turns()
    simulate(queue, loads, places=PLACES, seconds=600, seed=seed)
    assert queue.judged > 100


def test_classes_wait_in_the_order_of_their_rank():
    loads = [Load("a", name, rate, 300, 150) for name, rate in zip(CLASSES, (2.0, 0.2, 0.2), strict=True)]
    got = simulate(FairQueue(CLASSES, {}), loads, places=PLACES, seconds=3_600, seed=1)
    means = [sum(got["a", name].waits_ms) / got["a", name].requests for name in CLASSES]
    assert means == sorted(means)
