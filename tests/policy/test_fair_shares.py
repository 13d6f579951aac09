"""The fair queue's shares: service by weight whatever comes and leaves, and who gives way where it is full."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.fairness import CostWeights, FairQueue
from tests.policy.fair_queue import CLASSES, asked, served


@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(1, 20), min_size=2),
    st.integers(0, 2**32),
)
@settings(max_examples=30)
def test_shares_are_those_of_the_weights_for_any_lengths(weights: dict[str, int], seed: int):
    """Two tenants that always wait never differ by more than two of the largest requests, weighed (OSDI 2024, 4.1)."""
    drawn = random.Random(seed)
    queue, got, largest = FairQueue({}, weights), dict.fromkeys(weights, 0), 1_000 + 2 * 500
    lengths = {name: (drawn.randint(1, 1_000), drawn.randint(0, 500)) for name in weights}
    for name in weights:
        for number in range(3):
            queue.push(asked(f"{name}-{number}", name, "", *lengths[name]), 0)
    for step in range(3_000):
        request = queue.pop(step)
        assert request is not None
        prompt, expected = request.prompt_tokens, request.output_tokens
        really = drawn.randint(0, expected)
        queue.charge(request, really)
        got[request.tenant] += max(1, prompt + 2 * expected) - 2 * (expected - really)
        queue.push(request._replace(request_id=f"{request.tenant}+{step}"), step)
        per_weight = [got[name] / weight for name, weight in weights.items()]
        assert max(per_weight) - min(per_weight) <= 2 * largest / min(weights.values())


def test_one_request_is_not_held_behind_anothers_hundred():
    queue = FairQueue(CLASSES, {})
    for number in range(100):
        queue.push(asked(f"many-{number}", "many", prompt=5_000), 0)
    queue.pop(1)
    queue.push(asked("one", "one", prompt=5), 2)
    assert served(queue, 3).index("one") <= 1


def test_a_tenant_that_comes_back_has_no_credit_of_the_time_it_was_away():
    queue = FairQueue(CLASSES, {})
    queue.push(asked("early", "idle"), 0)
    assert served(queue) == ["early"]
    for number in range(100):
        queue.push(asked(f"busy-{number}", "busy"), 1)
    for _ in range(50):
        queue.pop(1)
    for number in range(50):
        queue.push(asked(f"idle-{number}", "idle"), 2)
    order = [name.split("-")[0] for name in served(queue, 2)]
    assert order[:20].count("idle") == order[:20].count("busy") == 10


def test_an_idle_queue_is_no_head_start():
    queue = FairQueue(CLASSES, {})
    for number in range(50):
        queue.push(asked(f"first-{number}", "a"), 0)
    served(queue)
    for number in range(20):
        queue.push(asked(f"b-{number}", "b"), 1)
        queue.push(asked(f"a-{number}", "a"), 1)
    order = [name.split("-")[0] for name in served(queue, 1)]
    assert order[:20].count("a") == order[:20].count("b") == 10


def test_a_correction_gives_no_credit_from_before_it_began_to_wait():
    """What was expected too much comes back, but no further than to where all the others stand."""
    queue = FairQueue(CLASSES, {})
    queue.push(asked("large", "a", output=10_000), 0)
    large = queue.pop(0)
    assert large is not None
    for number in range(50):
        queue.push(asked(f"b-{number}", "b"), 1)
    for _ in range(20):
        queue.pop(1)
    for number in range(50):
        queue.push(asked(f"a-{number}", "a"), 2)
    queue.charge(large, 0)
    order = [name.split("-")[0] for name in served(queue, 2)]
    assert order[:20].count("b") >= 10


def test_output_costs_what_it_was_and_not_what_was_expected():
    costs = CostWeights(prompt=1, output=3)
    guessed, known = FairQueue({}, {}, costs), FairQueue({}, {}, costs)
    for queue, expected in ((guessed, 400), (known, 0)):
        for name in "ab":
            for number in range(30):
                queue.push(asked(f"{name}-{number}", name, "", 10, expected), 0)
    orders = []
    for queue in (guessed, known):
        order = []
        while (request := queue.pop(0)) is not None:
            order.append(request.request_id)
            queue.charge(request, 100 if request.tenant == "a" else 300)
        orders.append(order)
    assert orders[0] == orders[1]


def test_a_weight_may_change_while_requests_wait():
    queue = FairQueue({}, {"a": 1, "b": 1})
    for number in range(100):
        queue.push(asked(f"a-{number}", "a", ""), 0)
        queue.push(asked(f"b-{number}", "b", ""), 0)
    for _ in range(20):
        queue.pop(0)
    queue.configure({}, {"a": 3, "b": 1})
    order = [name[0] for name in served(queue)]
    assert order[:40].count("a") == pytest.approx(30, abs=1)


def test_the_largest_weight_never_makes_service_free():
    queue = FairQueue({}, {"huge": 2**53 - 1, "small": 1})
    for number in range(3):
        queue.push(asked(f"huge-{number}", "huge", ""), 0)
        queue.push(asked(f"small-{number}", "small", ""), 0)
    assert served(queue)[:2] == ["huge-0", "small-0"]


def test_a_full_queue_sheds_of_the_highest_order_the_newest_of_whom_was_served_most():
    queue = FairQueue(CLASSES, {})
    assert queue.gives_way_to("gold", "a") is None
    queue.push(asked("gold", priority_class="gold"), 0)
    queue.push(asked("silver", priority_class="silver"), 0)
    assert queue.gives_way_to("silver", "a") is queue.gives_way_to("bulk", "a") is None
    for name in ("served", "b-1", "b-2"):
        queue.push(asked(name, "b", "bulk"), 1)
    queue.push(asked("c-1", "c", "bulk"), 2)
    for _ in range(3):
        queue.pop(2)
    victim = queue.gives_way_to("gold", "a")
    assert victim is not None
    assert victim.request_id == "b-2"
    assert queue.remove("b-2") == victim
    # Those of a class give way only to tenants that have fewer waiting.
    assert queue.gives_way_to("bulk", "c") is None


def test_in_a_full_queue_who_has_most_waiting_gives_way_to_who_has_fewer():
    queue = FairQueue(CLASSES, {"few": 1, "heavy": 10, "many": 1})
    for number in range(4):
        queue.push(asked(f"many-{number}", "many"), 0)
    for number in range(20):
        queue.push(asked(f"heavy-{number}", "heavy"), 0)
    victim = queue.gives_way_to("gold", "few")
    assert victim is not None
    assert victim.request_id == "many-3", "twenty are fewer than four where the weight is ten times theirs"
    assert queue.gives_way_to("gold", "many") is None
    assert queue.gives_way_to("silver", "few") is None, "who waits in another class has nothing to do with it"


@given(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9), min_size=1), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_places_in_a_full_queue_come_to_be_shared_by_weight_and_then_stay(weights: dict[str, int], seed: int):
    """However often each asks: after a while nobody takes anybody's place any more."""
    drawn = random.Random(seed)
    queue, cap, taken = FairQueue({}, weights), 40, 0
    counts = dict.fromkeys(weights, 0)
    for number in range(1_000):
        tenant = drawn.choice(sorted(weights))
        if len(queue) == cap:
            victim = queue.gives_way_to("", tenant)
            if victim is None:
                continue
            queue.remove(victim.request_id)
            counts[victim.tenant] -= 1
            taken = number
        queue.push(asked(str(number), tenant, ""), 0)
        counts[tenant] += 1
    assert taken < 700
    per_weight = [counts[name] / weights[name] for name in weights]
    assert max(per_weight) - min(per_weight) <= 1 / min(weights.values()) + 1
