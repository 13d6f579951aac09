"""A priority queue whose entries change their key: the smallest key first, each change in O(log n)."""

from __future__ import annotations

import heapq
from collections.abc import ItemsView
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", int, tuple[int, int])
# Below so many stale entries it is not worth tidying up.
_STALE_MIN = 16


class LazyHeap(Generic[KeyT]):
    """Names by (key, name). A changed key leaves a stale entry behind, which is passed over or tidied up later."""

    def __init__(self) -> None:
        self._keys: dict[str, KeyT] = {}
        self._heap: list[tuple[KeyT, str]] = []

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, name: str) -> KeyT:
        return self._keys[name]

    def items(self) -> ItemsView[str, KeyT]:
        """All names with their keys, in no order."""
        return self._keys.items()

    def smallest(self, most: int) -> list[tuple[KeyT, str]]:
        """The `most` smallest keys and their names, or all, in order: this looks at every name."""
        return heapq.nsmallest(most, ((key, name) for name, key in self._keys.items()))

    def put(self, name: str, key: KeyT) -> None:
        """Add a name, or change its key."""
        if self._keys.get(name) == key:
            return
        self._keys[name] = key
        heapq.heappush(self._heap, (key, name))
        if len(self._heap) > 2 * len(self._keys) + _STALE_MIN:
            self._heap = [(kept, each) for each, kept in self._keys.items()]
            heapq.heapify(self._heap)

    def remove(self, name: str) -> KeyT:
        return self._keys.pop(name)

    def first(self) -> str:
        """The name with the smallest key. Raises: IndexError where there is no name."""
        while True:
            key, name = self._heap[0]
            if self._keys.get(name) == key:
                return name
            heapq.heappop(self._heap)
