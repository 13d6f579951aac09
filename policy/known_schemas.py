"""Which schemas a tenant has used lately, and which a pool's engines should know before they are asked."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")
HOUR_MS = 3_600_000
# Of a tenant. A limit above it is none, since older ones are forgotten.
MOST_DISTINCT = 10_000


class UsedLately:
    """The different schemas of one tenant within an hour, by digest."""

    def __init__(self) -> None:
        # The one that was used longest ago stands first.
        self._used: OrderedDict[bytes, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._used)

    def use(self, digest: bytes, limit: int, now_ms: int) -> int:
        """Milliseconds until it may be used: 0 for one that is known, or for which the limit has room."""
        self._forget(now_ms - HOUR_MS)
        if digest not in self._used and len(self._used) >= limit:
            return next(iter(self._used.values())) + HOUR_MS - now_ms
        self._used[digest] = now_ms
        self._used.move_to_end(digest)
        if len(self._used) > MOST_DISTINCT:
            self._used.popitem(last=False)
        return 0

    def _forget(self, until_ms: int) -> None:
        while self._used and next(iter(self._used.values())) <= until_ms:
            self._used.popitem(last=False)


class MostUsed(Generic[T]):
    """The schemas that are used most, `capacity` of them, with what belongs to each.

    A new one takes the place of the least used and its count as well, so that whatever is used more often than
    1 ÷ `capacity` of the time is among them. Source: Metwally et al., Space-Saving, 2005.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._uses: dict[bytes, int] = {}
        self._values: dict[bytes, T] = {}

    def use(self, digest: bytes, value: T) -> None:
        uses = self._uses.get(digest, 0)
        if not uses and len(self._uses) >= self._capacity:
            if not self._capacity:
                return
            least = min(self._uses, key=self._uses.__getitem__)
            uses = self._uses.pop(least)
            del self._values[least]
        self._uses[digest] = uses + 1
        self._values[digest] = value

    def values(self) -> list[T]:
        """The most used first."""
        return [self._values[digest] for digest in sorted(self._uses, key=self._uses.__getitem__, reverse=True)]


class Seen:
    """The last `capacity` digests that were seen."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def see(self, digest: bytes) -> bool:
        """Whether it was seen before."""
        before = digest in self._seen
        self._seen[digest] = None
        self._seen.move_to_end(digest)
        if len(self._seen) > self._capacity:
            self._seen.popitem(last=False)
        return before
