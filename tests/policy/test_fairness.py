"""The fair queue: turns by rank and age, and what holds whatever comes and leaves."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from policy.ageing import rank_after, waits_at_most_ms
from policy.fairness import FairQueue, Waiting
from tests.policy.fair_queue import CLASSES, asked, served
from wire.snapshot import PriorityClass

NEVER = PriorityClass(rank=7)


def test_an_empty_queue_gives_nothing():
    queue = FairQueue(CLASSES, {})
    assert queue.pop(0) is queue.peek(0) is queue.remove("absent") is None
    assert len(queue) == queue.waiting_tokens == 0


def test_the_better_rank_goes_first_and_within_it_the_older():
    queue = FairQueue(CLASSES, {})
    for at_ms, (name, priority_class) in enumerate([("1", "bulk"), ("2", "gold"), ("3", "silver"), ("4", "gold")]):
        queue.push(asked(name, priority_class=priority_class), at_ms)
    assert served(queue, 4) == ["2", "4", "3", "1"]


def test_a_request_gains_a_rank_for_each_ageing_time():
    queue = FairQueue(CLASSES, {})
    queue.push(asked("old", priority_class="silver"), 0)
    queue.push(asked("new"), 1_999)
    assert _first(queue, 1_999) == "new"
    assert _first(queue, 2_000) == "old"


def _first(queue: FairQueue, now_ms: int) -> str:
    request = queue.peek(now_ms)
    assert request is not None
    return request.request_id


def test_a_class_that_never_ages_goes_strictly_by_rank():
    queue = FairQueue({**CLASSES, "never": NEVER}, {})
    queue.push(asked("old", priority_class="never"), 0)
    queue.push(asked("new", priority_class="bulk"), 10**9)
    assert served(queue, 10**9) == ["new", "old"]


@pytest.mark.parametrize(
    ("name", "bound_ms"), [("gold", 0), ("silver", 2 * 1_000), ("bulk", 5 * 2_000), ("never", None)]
)
def test_the_bound_is_the_time_to_gain_all_better_ranks(name: str, bound_ms: int | None):
    classes = {**CLASSES, "never": NEVER}
    assert waits_at_most_ms(classes[name], classes.values()) == bound_ms


def test_without_a_better_rank_even_a_class_that_never_ages_has_a_bound():
    assert waits_at_most_ms(NEVER, [NEVER, PriorityClass(rank=9)]) == 0
    assert waits_at_most_ms(NEVER, []) == 0


def test_a_request_of_no_class_waits_as_one_of_the_worst_rank():
    queue = FairQueue(CLASSES, {})
    queue.push(asked("none", priority_class=""), 0)
    queue.push(asked("silver", priority_class="silver"), 0)
    assert _first(queue, 0) == "silver"
    assert _first(queue, 10_000) == "none"
    unclassed = FairQueue({}, {})
    unclassed.push(asked("any", priority_class=""), 0)
    assert served(unclassed) == ["any"]


classes_drawn = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(PriorityClass, rank=st.integers(0, 5), ageing_ms=st.integers(0, 500)),
    min_size=1,
)


@given(classes_drawn, st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 300)), max_size=60), st.data())
def test_past_its_bound_nothing_that_arrived_later_goes_before_it(
    classes: dict[str, PriorityClass], steps: list[tuple[str, int]], data: st.DataObject
):
    """With one tenant a class a turn is its request's own, so the bound is one of requests."""
    serves = st.booleans()
    queue, now_ms = FairQueue(classes, {}), 0
    waiting: dict[str, tuple[str, int]] = {}
    for number, (name, passed_ms) in enumerate(steps):
        now_ms += passed_ms
        if name in classes:
            queue.push(asked(str(number), tenant=name, priority_class=name), now_ms)
            waiting[str(number)] = (name, now_ms)
        if data.draw(serves) and waiting:
            request = queue.pop(now_ms)
            assert request is not None
            _, arrived_ms = waiting.pop(request.request_id)
            for other, other_arrived_ms in waiting.values():
                bound_ms = waits_at_most_ms(classes[other], classes.values())
                if bound_ms is not None and now_ms - other_arrived_ms >= bound_ms:
                    assert arrived_ms <= other_arrived_ms


@given(st.builds(PriorityClass, rank=st.integers(0, 20), ageing_ms=st.integers(0, 10_000)), st.integers(0, 10**6))
def test_a_rank_only_gets_better_with_time_and_never_passes_the_best(described: PriorityClass, waited_ms: int):
    best = min(described.rank, 3)
    ranks = [rank_after(described, waited, best) for waited in (-5, 0, waited_ms, waited_ms + 1)]
    assert ranks[0] == ranks[1] == described.rank
    assert ranks == sorted(ranks, reverse=True)
    assert min(ranks) >= best


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from(["gold", "bulk"]), st.integers(0, 500), st.integers(0, 500)),
        min_size=1,
        max_size=20,
    )
)
def test_what_need_not_wait_counts_as_if_it_had_been_pushed_and_popped(requests: list[tuple[str, str, int, int]]):
    weights = {"a": 1, "b": 3}
    at_once, in_line = FairQueue(CLASSES, weights), FairQueue(CLASSES, weights)
    for number, (tenant, priority_class, prompt, really) in enumerate(requests):
        request = asked(str(number), tenant, priority_class, prompt, 200)
        at_once.serve_at_once(request)
        in_line.push(request, number)
        assert in_line.pop(number) == request
        for queue in (at_once, in_line):
            queue.charge(request, really)
    assert len(at_once) == at_once.waiting_tokens == 0
    orders = []
    for queue in (at_once, in_line):
        for number in range(40):
            queue.push(asked(f"later-{number}", "ab"[number % 2], ["gold", "bulk"][number // 2 % 2]), 100)
        orders.append(served(queue, 100))
    assert orders[0] == orders[1]


def test_the_same_request_does_not_wait_twice():
    queue = FairQueue(CLASSES, {})
    queue.push(asked("1"), 0)
    with pytest.raises(ValueError, match="waits already"):
        queue.push(asked("1", "b"), 1)
    assert len(queue) == 1


def test_a_turn_taken_by_another_tenant_leaves_its_own_behind():
    """Many of one tenant that is served least do not hold up the class's older turns for another class."""
    queue = FairQueue(CLASSES, {})
    # `a` has been served much, so that what it waits with now keeps the class's oldest turn for long.
    queue.push(asked("a-0", "a", "gold", prompt=10_000), 0)
    queue.pop(0)
    queue.push(asked("b-0", "b", "gold"), 0)
    queue.push(asked("a-1", "a", "gold"), 0)
    queue.push(asked("s-1", "s", "silver"), 1)
    for number in range(50):
        queue.push(asked(f"c-{number}", "c", "gold"), 2)
    now_ms = 1 + (waits_at_most_ms(CLASSES["silver"], CLASSES.values()) or 0)
    # Two turns of gold are older than silver's; after them silver's comes, whoever took those.
    assert served(queue, now_ms).index("s-1") == 2


class Model(RuleBasedStateMachine):
    """Against a list of what waits: nothing is lost, nothing doubled, and nobody idles while some wait."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = FairQueue(CLASSES, {"a": 1, "b": 5})
        self.waiting: dict[str, Waiting] = {}
        self.running: list[Waiting] = []
        self.now_ms = self.pushed = 0

    @rule(
        tenant=st.sampled_from("abc"),
        priority_class=st.sampled_from([*CLASSES, "", "unknown"]),
        prompt=st.integers(0, 9_999),
        output=st.integers(0, 99),
    )
    def push(self, tenant: str, priority_class: str, prompt: int, output: int) -> None:
        self.pushed += 1
        request = asked(str(self.pushed), tenant, priority_class, prompt, output)
        self.queue.push(request, self.now_ms)
        self.waiting[request.request_id] = request

    @rule(passed_ms=st.integers(0, 5_000))
    def pop(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        coming = self.queue.peek(self.now_ms)
        request = self.queue.pop(self.now_ms)
        assert request == coming
        assert (request is None) == (not self.waiting)
        if request is None:
            return
        assert self.waiting.pop(request.request_id) == request
        self.running.append(request)
        same = [each for each in self.waiting.values() if each[1:3] == request[1:3]]
        assert all(int(request.request_id) < int(each.request_id) for each in same), "not the oldest of its tenant"

    @rule(most=st.integers(0, 8))
    def look_ahead(self, most: int) -> None:
        """What is foretold is what comes: a copy of the queue gives it."""
        foretold = list(self.queue.in_order(self.now_ms, most))
        twin = copy.deepcopy(self.queue)
        assert foretold == [request for _ in range(most) if (request := twin.pop(self.now_ms)) is not None]

    @rule(past=st.integers(1, 5))
    def overtake(self, past: int) -> None:
        first = list(self.queue.in_order(self.now_ms, past + 1))
        if len(first) < 2:
            return
        *passed, request = first
        self.queue.take_past(passed, request)
        self.running.append(self.waiting.pop(request.request_id))
        if len({each.tenant for each in (*passed, request)}) == 1:
            # Nobody's share changes, and all that were passed are still first.
            assert list(self.queue.in_order(self.now_ms, len(passed))) == passed

    @precondition(lambda self: self.waiting)
    @rule(pick=st.integers(0, 99))
    def leave(self, pick: int) -> None:
        request_id = list(self.waiting)[pick % len(self.waiting)]
        assert self.queue.remove(request_id) == self.waiting.pop(request_id)
        assert self.queue.remove(request_id) is None

    @precondition(lambda self: self.running)
    @rule(output=st.integers(0, 999))
    def end(self, output: int) -> None:
        self.queue.charge(self.running.pop(), output)

    @rule(weights=st.dictionaries(st.sampled_from("abc"), st.integers(1, 9)), keep=st.sampled_from([*CLASSES, None]))
    def configure(self, weights: dict[str, int], keep: str | None) -> None:
        self.queue.configure({name: CLASSES[name] for name in CLASSES if name == keep or keep is None}, weights)

    @rule(priority_class=st.sampled_from([*CLASSES, "unknown"]))
    def shed(self, priority_class: str) -> None:
        victim = self.queue.gives_way_to(priority_class, "c")
        assert victim is None or self.waiting[victim.request_id] == victim

    @invariant()
    def counts_hold(self) -> None:
        assert len(self.queue) == len(self.waiting)
        assert self.queue.waiting_tokens == sum(each.tokens for each in self.waiting.values())

    def teardown(self) -> None:
        self.now_ms += 10**6
        assert sorted(served(self.queue, self.now_ms)) == sorted(self.waiting)


TestModel = Model.TestCase


def test_the_same_calls_give_the_same_order():
    def run(build: Callable[[], FairQueue]) -> list[str]:
        queue = build()
        for number in range(200):
            queue.push(asked(str(number), f"t-{number * 7 % 13}", list(CLASSES)[number % 3], number), number)
        return served(queue, 200)

    assert run(lambda: FairQueue(CLASSES, {})) == run(lambda: FairQueue(CLASSES, {}))
