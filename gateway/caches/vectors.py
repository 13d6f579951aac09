"""Cosine similarity of a question to all that are kept beside it."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Item = TypeVar("Item")
# Products of more numbers than this (some 0.1 ms of work) are worked out in a thread.
_OFF_LOOP_NUMBERS = 1_000_000
# At once: of larger products OpenBLAS shares out the work, and on busy cores waits 20 ms for its threads to save one.
_AT_ONCE_NUMBERS = 262_144


def unit_vector(numbers: list[float]) -> Vector | None:
    """The direction of an embedding; None of one that has none: not finite, or all zeros."""
    vector: NDArray[np.float64] = np.asarray(numbers, dtype=np.float64)
    with np.errstate(over="ignore"):
        length = float(np.linalg.norm(vector))
    if not np.isfinite(length) or length == 0:
        return None
    return (vector / length).astype(np.float32)


class Vectors(Generic[Item]):
    """Unit vectors of `dimension`, one row each; a row that was taken away is used again."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self._rows: NDArray[np.float32] = np.zeros((8, dimension), dtype=np.float32)
        self._items: list[Item | None] = []
        self._row_of: dict[Item, int] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._row_of)

    def add(self, item: Item, vector: Vector) -> None:
        if self._free:
            row = self._free.pop()
            self._items[row] = item
        else:
            row = len(self._items)
            self._items.append(item)
            if row == len(self._rows):
                self._rows = np.concatenate((self._rows, np.zeros_like(self._rows)))
        self._rows[row] = vector
        self._row_of[item] = row

    def remove(self, item: Item) -> None:
        row = self._row_of.pop(item)
        self._items[row] = None
        self._free.append(row)

    async def similar(self, vector: Vector, at_least: float) -> list[tuple[float, Item]]:
        """(cosine, item) of those that are alike enough, the most alike first.

        A row that is written anew while a thread reads it belonged to an item that is gone, so it is not told of.
        """
        rows, items = self._rows[: len(self._items)], list(self._items)
        if rows.size > _OFF_LOOP_NUMBERS:
            found = await asyncio.to_thread(_above, rows, vector, at_least)
        else:
            found = _above(rows, vector, at_least)
        return [
            (score, item) for score, row in found if (item := items[row]) is not None and self._row_of.get(item) == row
        ]


def _above(rows: NDArray[np.float32], vector: Vector, at_least: float) -> list[tuple[float, int]]:
    scores: NDArray[np.float32] = np.empty(len(rows), dtype=np.float32)
    step = max(1, _AT_ONCE_NUMBERS // len(vector))
    for begin in range(0, len(rows), step):
        np.dot(rows[begin : begin + step], vector, out=scores[begin : begin + step])
    found = np.flatnonzero(scores >= at_least)
    # Rounding may bring the cosine of a vector with itself above one.
    return sorted(((min(1.0, float(scores[row])), int(row)) for row in found), reverse=True)
