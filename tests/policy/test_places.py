"""How many go before a new request, at least."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from policy.fairness import FairQueue, Waiting
from policy.places import LOOK_EVERY_MS, Places
from wire.snapshot import PriorityClass

CLASSES = {"gold": PriorityClass(rank=0), "bulk": PriorityClass(rank=5), "aged": PriorityClass(rank=5, ageing_ms=100)}


class Told:
    """A queue whose places are told of what comes and goes."""

    def __init__(self) -> None:
        self.queue = FairQueue(CLASSES, {"a": 1, "b": 3})
        self.places = Places(self.queue)
        self.number = 0

    def push(self, priority_class: str, tenant: str, tokens: int = 10, now_ms: int = 0) -> None:
        self.number += 1
        request = Waiting(str(self.number), tenant, priority_class, tokens)
        self.queue.push(request, now_ms)
        self.places.entered(request)

    def pop(self, now_ms: int = 0) -> None:
        if (request := self.queue.pop(now_ms)) is not None:
            self.places.left(request, served=True)

    def remove(self, number: int) -> None:
        waiting = list(self.queue.in_order(0, len(self.queue)))
        if (request := self.queue.remove(str(number))) is not None:
            own = [int(each.request_id) for each in waiting if each[1:3] == request[1:3]]
            self.places.left(request, served=False, was_last=max(own) == number)

    def truly_before(self, priority_class: str, tenant: str, tokens: int, now_ms: int) -> int:
        request = Waiting("new", tenant, priority_class, tokens)
        self.queue.push(request, now_ms)
        place = list(self.queue.in_order(now_ms, len(self.queue))).index(request)
        self.queue.remove("new")
        return place


def test_behind_its_own_all_are_before_it_and_behind_others_of_its_class_a_share():
    told = Told()
    for _ in range(10):
        told.push("gold", "a")
    assert told.places.before("gold", "a", 0, 0) == 10
    assert told.places.before("gold", "b", 0, 0) == 0
    for _ in range(6):
        told.push("gold", "b")
    # Six by a weight of three: two or three of a's among them.
    assert 6 <= told.places.before("gold", "b", LOOK_EVERY_MS, 0) <= 9


def test_a_better_class_goes_before_until_age_makes_up_for_it():
    told = Told()
    told.push("aged", "a")
    for _ in range(5):
        told.push("gold", "a", now_ms=10)
    assert told.places.before("aged", "a", 20, 0) == 6
    assert told.places.before("aged", "a", 20 + LOOK_EVERY_MS, 500) == 1


def test_what_is_served_since_is_subtracted_and_what_came_is_added():
    told = Told()
    for _ in range(10):
        told.push("gold", "a")
    assert told.places.before("gold", "a", 0, 0) == 10
    for _ in range(4):
        told.pop()
    told.push("gold", "a")
    assert told.places.before("gold", "a", 1, 0) == 7


def test_whose_last_one_left_the_next_one_has_its_place():
    told = Told()
    for _ in range(10):
        told.push("gold", "a")
    told.places.before("gold", "a", 0, 0)
    told.push("gold", "a")
    told.remove(11)
    assert told.places.before("gold", "a", 1, 0) == 10


def test_where_another_left_nothing_is_known_until_the_next_look():
    told = Told()
    for _ in range(10):
        told.push("gold", "a")
    told.places.before("gold", "a", 0, 0)
    told.remove(5)
    assert told.places.before("gold", "a", 1, 0) == 0
    assert told.places.before("gold", "a", LOOK_EVERY_MS, 0) == 9


steps = st.lists(
    st.tuples(
        st.sampled_from(["push", "push", "pop", "remove"]),
        st.sampled_from(["gold", "bulk"]),
        st.sampled_from("abc"),
        st.integers(1, 50),
    ),
    max_size=60,
)


@given(steps, st.integers(1, 50))
@settings(deadline=None)
def test_never_are_more_told_than_there_are(happens: list[tuple[str, str, str, int]], tokens: int):
    """Of equal lengths: the order of tenants is that of counters, which lengths of later ones do not change."""
    told = Told()
    for number, (what, priority_class, tenant, pick) in enumerate(happens):
        if what == "push":
            told.push(priority_class, tenant, tokens)
        elif what == "pop":
            told.pop()
        else:
            told.remove(pick)
        for each in ("gold", "bulk"):
            for name in "abc":
                before = told.places.before(each, name, number * 20, 0)
                assert before <= told.truly_before(each, name, tokens, 0)
