"""Which kept question is the most alike."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.caches import vectors
from gateway.caches.vectors import Vectors, unit_vector

numbers = st.lists(st.floats(-1e6, 1e6, width=32), min_size=3, max_size=3).filter(lambda row: math.hypot(*row) > 1e-3)


def unit(*row: float) -> vectors.Vector:
    vector = unit_vector(list(row))
    assert vector is not None
    return vector


@pytest.mark.parametrize(
    "row", [[0.0, 0.0], [math.nan, 1.0], [math.inf, 1.0], [-math.inf, math.inf], [1e308, 1e308], [0.0]]
)
def test_what_has_no_direction_is_no_vector(row: list[float]) -> None:
    assert unit_vector(row) is None


@given(st.lists(numbers, min_size=1, max_size=12), st.lists(st.integers(0, 11)), numbers)
async def test_those_that_are_alike_enough_are_found_the_most_alike_first(
    rows: list[list[float]], gone: list[int], asked: list[float]
) -> None:
    index: Vectors[int] = Vectors(3)
    left = {}
    for item, row in enumerate(rows):
        index.add(item, unit(*row))
        left[item] = row
    for item in gone:
        if item in left:
            index.remove(item)
            # Its row is used again.
            index.add(item + 100, unit(*left.pop(item)))
            index.remove(item + 100)
    found = await index.similar(unit(*asked), 0.5)
    cosines = {item: float(unit(*row) @ unit(*asked)) for item, row in left.items()}
    assert {item for _, item in found} >= {item for item, cosine in cosines.items() if cosine > 0.5001}
    assert {item for _, item in found} <= {item for item, cosine in cosines.items() if cosine > 0.4999}
    assert [score for score, _ in found] == sorted((score for score, _ in found), reverse=True)
    assert all(score <= 1 for score, _ in found)
    assert len(index) == len(left)


async def test_many_are_compared_in_a_thread_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(7)
    index: Vectors[int] = Vectors(64)
    for item in range(500):
        index.add(item, unit(*generator.normal(size=64)))
    asked = unit(*generator.normal(size=64))
    here = await index.similar(asked, 0.1)
    monkeypatch.setattr(vectors, "_OFF_LOOP_NUMBERS", 0)
    assert await index.similar(asked, 0.1) == here != []


async def test_what_went_while_a_thread_compared_is_not_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    index: Vectors[str] = Vectors(2)
    for name in ("gone", "stays"):
        index.add(name, unit(1, 0))

    async def replaced_meanwhile(work, *arguments):
        found = work(*arguments)
        index.remove("gone")
        index.add("new", unit(0, 1))
        return found

    monkeypatch.setattr(vectors, "_OFF_LOOP_NUMBERS", 0)
    monkeypatch.setattr("gateway.caches.vectors.asyncio.to_thread", replaced_meanwhile)
    assert [item for _, item in await index.similar(unit(1, 0), 0.9)] == ["stays"]
