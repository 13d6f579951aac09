"""Findings begin and end only once they have lasted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controlplane.diagnosis.hysteresis import Standing, stepped


def _run(found: list[bool], lasts: int) -> list[Standing | None]:
    states: list[Standing | None] = []
    standing = None
    for each in found:
        standing = stepped(standing, each, lasts)
        states.append(standing)
    return states


def test_it_is_shown_in_the_last_of_the_rounds_that_it_must_last():
    assert [state and state.shown for state in _run([True, True, True], 3)] == [False, False, True]


def test_one_that_is_missed_before_it_is_shown_begins_anew():
    assert _run([True, False], 3)[-1] is None
    assert [state and state.shown for state in _run([True, False, True, True, True], 3)] == [
        False, None, False, False, True
    ]  # fmt: skip


def test_one_that_is_shown_survives_fewer_misses_than_it_must_last():
    assert [bool(state) for state in _run([True, True, False, True, False, False], 2)] == [
        True, True, True, True, True, False
    ]  # fmt: skip


@given(st.lists(st.booleans(), max_size=40), st.integers(1, 5))
def test_what_is_shown_was_found_in_a_row_and_what_is_over_was_missed_in_a_row(found: list[bool], lasts: int):
    states = _run(found, lasts)
    shown = [state is not None and state.shown for state in states]
    for place, now in enumerate(shown):
        before = place > 0 and shown[place - 1]
        last = found[max(0, place + 1 - lasts) : place + 1]
        if now and not before:
            assert last == [True] * lasts
        if before and not now:
            assert last == [False] * lasts
