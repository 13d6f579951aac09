"""Answers to questions that mean the same, and those that wait until somebody approves them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from gateway.caches.exact import ShelfName
from gateway.caches.questions import Question, is_time_bound
from gateway.caches.room import Answer, Kept, Room
from gateway.caches.vectors import Vector, Vectors
from wire.snapshot import SemanticCache

# Questions whose threshold a wrong hit has raised, over all tenants; the oldest go.
_RAISED_MAX = 10_000


class Place(NamedTuple):
    """Where a question belongs: `scope` is all of its request but the question's words (a digest)."""

    shelf: ShelfName
    scope: bytes


class Candidate(Kept):
    """An answer that may be given to others once somebody has approved it."""

    __slots__ = ("place", "question", "time_bound", "vector")

    def __init__(
        self, answer: Answer, forget: Callable[[], None], place: Place, question: Question, time_bound: bool
    ) -> None:
        super().__init__(answer, forget, more_bytes=4 * len(question.text))
        self.place, self.question, self.time_bound = place, question, time_bound
        # Where it was worked out already, to look for an answer.
        self.vector: Vector | None = None


class Shared(Kept):
    """An answer that is given to whoever asks a question that means the same: more than `above` alike.

    One that is not `approved` is given only while the policy asks for no approval.
    """

    __slots__ = ("above", "approved", "place", "question", "time_bound")

    def __init__(
        self, candidate: Candidate, vector: Vector, forget: Callable[[], None], above: float, *, approved: bool
    ) -> None:
        super().__init__(candidate.answer, forget, more_bytes=vector.nbytes + 4 * len(candidate.question.text))
        self.place, self.question, self.time_bound = candidate.place, candidate.question, candidate.time_bound
        self.above, self.approved = above, approved


class SemanticAnswers:
    """Of each place its own vectors.

    Of each tenant and policy at most `max_entries`, and as many that wait; the least recently used goes.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._indexes: dict[Place, Vectors[Shared]] = {}
        self._shelves: dict[ShelfName, OrderedDict[Shared, None]] = {}
        self._by_words: dict[tuple[Place, bytes], Shared] = {}
        self._candidates: dict[ShelfName, OrderedDict[bytes, Candidate]] = {}
        self._raised: OrderedDict[tuple[Place, bytes], float] = OrderedDict()

    def __len__(self) -> int:
        # A metrics page is written in a thread.
        return sum(map(len, tuple(self._shelves.values())))

    @property
    def waiting(self) -> int:
        """Answers that nobody has approved yet."""
        return sum(map(len, tuple(self._candidates.values())))

    def knows(self, place: Place) -> bool:
        """Whether there is anything to compare a question with."""
        return place in self._indexes

    async def get(
        self, place: Place, vector: Vector, policy: SemanticCache, now_ms: int, max_age_ms: int | None
    ) -> tuple[Shared, float] | None:
        """The answer to the question that is the most alike, and how alike; None where none is alike enough."""
        index = self._indexes.get(place)
        if index is None or index.dimension != len(vector):
            return None
        for similarity, shared in await index.similar(vector, policy.similarity_permille / 1000):
            age_ms = shared.answer.age_ms(now_ms)
            if age_ms >= _ttl_ms(shared, policy):
                self._room.drop(shared)
            elif (
                similarity > shared.above
                and (shared.approved or not policy.only_verified)
                and (max_age_ms is None or age_ms <= max_age_ms)
            ):
                self._shelves[place.shelf].move_to_end(shared)
                self._room.use(shared)
                return shared, similarity
        return None

    def wait(self, place: Place, key: bytes, question: Question, answer: Answer, policy: SemanticCache) -> Candidate:
        """Hold an answer until it is approved; `key` is that of its whole request, whose later answer replaces it."""
        shelf = place.shelf
        before = self._candidates.get(shelf)
        if before is not None and key in before:
            self._room.drop(before[key])
        time_bound = is_time_bound(question, policy.time_bound)
        candidate = Candidate(answer, lambda: self._forget_candidate(shelf, key), place, question, time_bound)
        waiting = self._candidates.setdefault(shelf, OrderedDict())
        waiting[key] = candidate
        while len(waiting) > policy.max_entries:
            self._room.drop(next(iter(waiting.values())))
        self._room.put(candidate)
        return candidate

    def share(
        self, candidate: Candidate, vector: Vector, policy: SemanticCache, now_ms: int, *, approved: bool
    ) -> bool:
        """Give an answer to others from now on, in the place of one to the very same question.

        False where it is too old by now, or where its vector cannot be compared with those that are there: one of
        another length comes from another model.
        """
        place, shelf = candidate.place, candidate.place.shelf
        index = self._indexes.get(place)
        if index is not None and index.dimension != len(vector):
            return False
        self._room.drop(candidate)
        if candidate.answer.age_ms(now_ms) >= _ttl_ms(candidate, policy):
            return False
        words = (place, candidate.question.digest)
        if words in self._by_words:
            self._room.drop(self._by_words[words])
        above = self._raised.get(words, -1.0)
        shared = Shared(candidate, vector, lambda: self._forget(shared), above, approved=approved)
        self._by_words[words] = shared
        self._indexes.setdefault(place, Vectors(len(vector))).add(shared, vector)
        self._shelves.setdefault(shelf, OrderedDict())[shared] = None
        while len(self._shelves[shelf]) > policy.max_entries:
            self._room.drop(next(iter(self._shelves[shelf])))
        self._room.put(shared)
        return True

    def was_wrong(self, shared: Shared, similarity: float) -> None:
        """Forget an answer that was given to a question of another meaning.

        Should its own question be answered anew, only those are that are more alike than the one that was not; after
        a wrong answer to the very same words none is.
        """
        self._room.drop(shared)
        name = (shared.place, shared.question.digest)
        self._raised[name] = max(similarity, self._raised.pop(name, -1.0))
        if len(self._raised) > _RAISED_MAX:
            self._raised.popitem(last=False)

    def keep_only(self, stays: Callable[[ShelfName], bool]) -> None:
        """Forget what no tenant may be answered with any more."""
        for shelf in [shelf for shelf in self._shelves if not stays(shelf)]:
            for shared in list(self._shelves[shelf]):
                self._room.drop(shared)
        for shelf in [shelf for shelf in self._candidates if not stays(shelf)]:
            for candidate in list(self._candidates[shelf].values()):
                self._room.drop(candidate)
        for name in [name for name in self._raised if not stays(name[0].shelf)]:
            del self._raised[name]

    def _forget_candidate(self, shelf: ShelfName, key: bytes) -> None:
        del self._candidates[shelf][key]
        if not self._candidates[shelf]:
            del self._candidates[shelf]

    def _forget(self, shared: Shared) -> None:
        place = shared.place
        del self._by_words[place, shared.question.digest]
        self._indexes[place].remove(shared)
        if not self._indexes[place]:
            del self._indexes[place]
        del self._shelves[place.shelf][shared]
        if not self._shelves[place.shelf]:
            del self._shelves[place.shelf]


def _ttl_ms(entry: Candidate | Shared, policy: SemanticCache) -> int:
    return min(policy.ttl_ms, policy.time_bound_ttl_ms) if entry.time_bound else policy.ttl_ms
