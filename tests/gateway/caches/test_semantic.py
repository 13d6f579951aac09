"""Answers to questions that mean the same: who is given one, for how long, and what a wrong one changes."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.caches.exact import ShelfName
from gateway.caches.questions import Question
from gateway.caches.room import Answer, Room
from gateway.caches.semantic import Candidate, Place, SemanticAnswers, Shared
from gateway.caches.vectors import Vector, unit_vector
from wire.snapshot import SemanticCache

ALPHA, BETA = ShelfName("alpha", "faq"), ShelfName("beta", "faq")
PLACE = Place(ALPHA, b"chat")
POLICY = SemanticCache(embedding_model="acme/embed", similarity_permille=900, ttl_ms=1_000, time_bound_ttl_ms=100)


def towards(degrees: float) -> Vector:
    vector = unit_vector([math.cos(math.radians(degrees)), math.sin(math.radians(degrees))])
    assert vector is not None
    return vector


def question(words: str) -> Question:
    return Question(words, words, words.encode(), b"[]")


class Fixture:
    def __init__(self, limit_bytes: int = 1_000_000) -> None:
        self.room = Room(limit_bytes)
        self.answers = SemanticAnswers(self.room)

    def wait(
        self, words: str = "a", place: Place = PLACE, *, time_bound: bool = False, policy: SemanticCache = POLICY
    ) -> Candidate:
        policy = msgspec.structs.replace(policy, time_bound={words: True}) if time_bound else policy
        return self.answers.wait(place, words.encode(), question(words), Answer(words.encode(), False, 0), policy)

    def share(self, words: str = "a", degrees: float = 0, *, time_bound: bool = False) -> bool:
        return self.answers.share(self.wait(words, time_bound=time_bound), towards(degrees), POLICY, 0, approved=True)

    async def given(
        self, degrees: float = 0, place: Place = PLACE, policy: SemanticCache = POLICY, now_ms: int = 0
    ) -> str | None:
        found = await self.answers.get(place, towards(degrees), policy, now_ms, None)
        return found[0].answer.body.decode() if found else None

    async def found(self, degrees: float = 0) -> tuple[Shared, float]:
        found = await self.answers.get(PLACE, towards(degrees), POLICY, 0, None)
        assert found is not None
        return found


async def test_nobody_is_given_an_answer_that_waits() -> None:
    it = Fixture()
    candidate = it.wait()
    assert not it.answers.knows(PLACE)
    assert await it.given() is None
    assert it.answers.share(candidate, towards(0), POLICY, 0, approved=True)
    assert await it.given() == "a"
    # It is not counted twice.
    assert len(it.room) == len(it.answers) == 1


async def test_the_most_alike_is_given_and_none_that_is_less_alike_than_the_policy_says() -> None:
    it = Fixture()
    it.share("a", 0)
    it.share("b", 10)
    assert [await it.given(degrees) for degrees in (4, 6, 35, 40)] == ["a", "b", "b", None]
    strict = SemanticCache(embedding_model="acme/embed", similarity_permille=1000)
    assert await it.given(4, policy=strict) is None


async def test_other_tenants_and_other_requests_have_places_of_their_own() -> None:
    it = Fixture()
    it.share()
    assert await it.given(place=Place(BETA, b"chat")) is None
    assert await it.given(place=Place(ALPHA, b"other")) is None


async def test_what_is_bound_to_a_time_is_given_for_a_shorter_one() -> None:
    it = Fixture()
    it.share("a", 0)
    it.share("b", 90, time_bound=True)
    assert (await it.given(0, now_ms=999), await it.given(90, now_ms=99)) == ("a", "b")
    assert (await it.given(0, now_ms=1_000), await it.given(90, now_ms=100)) == (None, None)
    assert len(it.answers) == 0


def test_an_answer_that_is_too_old_is_not_shared() -> None:
    it = Fixture()
    assert not it.answers.share(it.wait("a", time_bound=True), towards(0), POLICY, 100, approved=True)
    assert len(it.room) == 0


async def test_a_vector_of_another_length_is_no_match_and_is_not_shared() -> None:
    it = Fixture()
    it.share("a")
    longer = unit_vector([1.0, 0.0, 0.0])
    assert longer is not None
    assert await it.answers.get(PLACE, longer, POLICY, 0, None) is None
    assert not it.answers.share(it.wait("b"), longer, POLICY, 0, approved=True)
    assert await it.given() == "a"


async def test_a_new_answer_to_the_same_words_takes_the_place_of_the_old_one() -> None:
    it = Fixture()
    it.share("a")
    newer = it.answers.wait(PLACE, b"k", question("a"), Answer(b"newer", False, 0), POLICY)
    assert it.answers.share(newer, towards(0), POLICY, 0, approved=True)
    assert (await it.given(), len(it.answers)) == ("newer", 1)


async def test_the_least_recently_used_goes_where_the_policy_allows_no_more() -> None:
    it = Fixture()
    two = SemanticCache(embedding_model="acme/embed", max_entries=2)
    for words, degrees in (("a", 0), ("b", 60)):
        it.answers.share(it.wait(words), towards(degrees), two, 0, approved=True)
    assert await it.given(0) == "a"
    it.answers.share(it.wait("c"), towards(120), two, 0, approved=True)
    assert [await it.given(degrees) for degrees in (0, 60, 120)] == ["a", None, "c"]


async def test_what_nobody_approved_is_given_only_while_the_policy_asks_for_no_approval() -> None:
    it = Fixture()
    it.answers.share(it.wait(), towards(0), POLICY, 0, approved=False)
    loose = SemanticCache(embedding_model="acme/embed", only_verified=False)
    assert (await it.given(policy=loose), await it.given(policy=POLICY)) == ("a", None)


async def test_an_answer_whose_vector_cannot_be_compared_waits_on() -> None:
    it = Fixture()
    it.share("a")
    candidate, longer = it.wait("b"), unit_vector([1.0, 0.0, 0.0])
    assert longer is not None
    assert not it.answers.share(candidate, longer, POLICY, 0, approved=True)
    assert it.answers.share(candidate, towards(90), POLICY, 0, approved=True)
    assert await it.given(90) == "b"


async def test_no_more_answers_wait_than_may_be_kept() -> None:
    it = Fixture()
    two = SemanticCache(embedding_model="acme/embed", max_entries=2)
    first, *_ = [it.wait(words, policy=two) for words in "abc"]
    it.wait("c", policy=two)
    it.wait("a", Place(BETA, b"chat"), policy=two)
    assert (it.answers.waiting, first in it.room) == (3, False)


async def test_a_wrong_answer_is_given_to_nobody_and_its_question_needs_to_be_more_alike() -> None:
    it = Fixture()
    it.share("a", 0)
    shared, similarity = await it.found(20)
    it.answers.was_wrong(shared, similarity)
    assert await it.given(0) is None
    # Approved anew, it is given to those alone that are more alike than the one that was not.
    it.share("a", 0)
    assert [await it.given(degrees) for degrees in (20, 21, 15, 0)] == [None, None, "a", "a"]


async def test_after_a_wrong_answer_to_the_same_words_none_is_given() -> None:
    it = Fixture()
    it.share("a", 0)
    shared, similarity = await it.found(0)
    it.answers.was_wrong(shared, similarity)
    it.share("a", 0)
    assert await it.given(0) is None


async def test_a_milder_report_does_not_lower_what_an_earlier_one_raised() -> None:
    it = Fixture()
    for degrees in (5, 20):
        it.share("a", 0)
        shared, _ = await it.found(1)
        it.answers.was_wrong(shared, math.cos(math.radians(degrees)))
    it.share("a", 0)
    assert [await it.given(degrees) for degrees in (10, 4)] == [None, "a"]


def test_the_memory_of_wrong_answers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Fixture()
    monkeypatch.setattr("gateway.caches.semantic._RAISED_MAX", 3)
    for number in range(10):
        it.share(str(number))
        it.answers.was_wrong(next(iter(it.answers._shelves[ALPHA])), 1.0)
    assert len(it.answers._raised) == 3


shelves = st.sampled_from([ALPHA, BETA])
acts = st.lists(st.tuples(shelves, st.sampled_from("abcd"), st.integers(0, 359), st.booleans()), max_size=30)


@given(acts, st.integers(0, 6_000))
async def test_whatever_comes_and_goes_the_memory_is_accounted_for(
    acts: list[tuple[ShelfName, str, int, bool]], limit_bytes: int
) -> None:
    it = Fixture(limit_bytes)
    for shelf, words, degrees, approved in acts:
        candidate = it.wait(words, Place(shelf, b"chat"))
        if approved and candidate in it.room:
            it.answers.share(candidate, towards(degrees), POLICY, 0, approved=True)
        assert it.room.used_bytes <= limit_bytes
    assert len(it.room) == len(it.answers) + it.answers.waiting
    it.answers.keep_only(lambda shelf: False)
    assert (it.room.used_bytes, len(it.room)) == (0, 0)
    assert not it.answers._indexes
    assert not it.answers._by_words
    assert not it.answers._shelves
