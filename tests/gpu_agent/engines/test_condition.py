"""Conditions and their events, over any course of looks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpu_agent.engines.condition import BEGINNINGS, Signs, condition_events, condition_of

maybe = st.sampled_from([True, False, None])
signs = st.builds(
    Signs,
    down=st.sampled_from([None, None, None, "dead", "unreachable"]),
    sleeping=maybe,
    paused=maybe,
    hung=maybe,
)
courses = st.lists(signs, max_size=30)


def followed(course):
    """Each look's signs with the condition before and after it and the events that it asks for."""
    before = None
    for shown in course:
        after = condition_of(before, shown)
        yield shown, before, after, condition_events(before, after)
        before = after


@given(courses)
def test_there_is_no_condition_without_evidence_and_no_end_of_one_without_evidence_against_it(course):
    for shown, before, after, _ in followed(course):
        if after in ("dead", "unreachable"):
            assert shown.down == after
        else:
            assert shown.down is None
        if after in ("hung", "paused", "sleeping"):
            assert getattr(shown, after) or (getattr(shown, after) is None and before == after)
        if after == "ok" and before in ("hung", "paused", "sleeping"):
            assert getattr(shown, before) is False


@given(courses)
def test_each_ill_begins_by_one_event_and_ends_by_one_and_none_is_told_while_it_lasts(course):
    open_ills: set[str] = set()
    for _, before, after, told in followed(course):
        for event in told:
            if event == "engine_up":
                assert open_ills, "an end of nothing"
                open_ills.clear()
            else:
                assert event not in open_ills, "told twice"
                open_ills.add(event)
        assert (BEGINNINGS.get(after) in open_ills) == (after != "ok")
        assert after != "ok" or not open_ills
        assert not told or before != after


@given(courses)
def test_only_an_engine_that_goes_down_is_in_two_ills(course):
    open_ills: set[str] = set()
    for _, _, after, told in followed(course):
        for event in told:
            open_ills = set() if event == "engine_up" else open_ills | {event}
        assert len(open_ills) <= 1 or (after in ("dead", "unreachable") and len(open_ills) == 2)


def test_the_cause_counts_where_several_signs_hold():
    assert condition_of(None, Signs(sleeping=True, paused=True, hung=True)) == "sleeping"
    assert condition_of(None, Signs(sleeping=False, paused=True, hung=True)) == "paused"


def test_a_dead_engine_that_cannot_be_reached_any_more_is_no_news():
    assert condition_events("dead", "unreachable") == []


def test_an_engine_that_is_up_at_first_sight_is_no_news_and_one_that_is_not_is():
    assert condition_events(None, "ok") == []
    assert condition_events(None, "dead") == ["engine_down"]
