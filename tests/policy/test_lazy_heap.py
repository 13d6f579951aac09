"""The heap whose keys change, against a plain search."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.lazy_heap import LazyHeap

steps = st.lists(st.tuples(st.sampled_from("abcde"), st.none() | st.integers(-5, 5)), max_size=200)


@given(steps)
def test_the_smallest_key_is_first_whatever_changed(steps: list[tuple[str, int | None]]):
    heap: LazyHeap[int] = LazyHeap()
    plain: dict[str, int] = {}
    for name, key in steps:
        if key is not None:
            heap.put(name, key)
            plain[name] = key
        elif name in plain:
            assert heap.remove(name) == plain.pop(name)
        assert len(heap) == len(plain)
        if plain:
            first = min(plain, key=lambda each: (plain[each], each))
            assert heap.first() == first
            assert heap[first] == plain[first]
        else:
            with pytest.raises(IndexError):
                heap.first()


def test_changes_leave_no_more_behind_than_there_is():
    heap: LazyHeap[int] = LazyHeap()
    for key in range(10_000):
        heap.put("a", -key)
        heap.put("b", key)
    assert heap.first() == "a"
    assert len(heap._heap) < 100
