"""Answers to the same request again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from gateway.caches.room import Answer, Kept, Room
from wire.snapshot import ExactCache


class ShelfName(NamedTuple):
    """Whose answers they are. A tenant's never lie on another one's shelf."""

    tenant: str
    policy: str


class ExactAnswers:
    """A shelf for each tenant and policy, the least recently used answer first."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._shelves: dict[ShelfName, OrderedDict[bytes, Kept]] = {}

    def __len__(self) -> int:
        # A metrics page is written in a thread.
        return sum(map(len, tuple(self._shelves.values())))

    def get(self, name: ShelfName, key: bytes, policy: ExactCache, now_ms: int, max_age_ms: int | None) -> Kept | None:
        """The answer to this request, if it is fresh enough for the policy, and for who asks."""
        shelf = self._shelves.get(name)
        kept = shelf.get(key) if shelf else None
        if shelf is None or kept is None:
            return None
        age_ms = kept.answer.age_ms(now_ms)
        if age_ms >= policy.ttl_ms:
            self._room.drop(kept)
            return None
        if max_age_ms is not None and age_ms > max_age_ms:
            return None
        shelf.move_to_end(key)
        self._room.use(kept)
        return kept

    def put(self, name: ShelfName, key: bytes, answer: Answer, policy: ExactCache) -> Kept:
        """Keep an answer in the place of the one before it."""
        shelf = self._shelves.setdefault(name, OrderedDict())
        if key in shelf:
            self._room.drop(shelf[key])
        kept = Kept(answer, partial(self._forget, name, key))
        # Dropping the last of a shelf has taken the shelf away.
        shelf = self._shelves.setdefault(name, shelf)
        shelf[key] = kept
        while len(shelf) > policy.max_entries:
            self._room.drop(next(iter(shelf.values())))
        self._room.put(kept)
        return kept

    def keep_only(self, stays: Callable[[ShelfName], bool]) -> None:
        """Forget what no tenant may be answered with any more."""
        for name in [name for name in self._shelves if not stays(name)]:
            for kept in list(self._shelves[name].values()):
                self._room.drop(kept)

    def _forget(self, name: ShelfName, key: bytes) -> None:
        shelf = self._shelves[name]
        del shelf[key]
        if not shelf:
            del self._shelves[name]
