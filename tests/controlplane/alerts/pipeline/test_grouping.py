"""Which alerts share an incident, and who is told of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.alerts.pipeline.grouping import Route, Timing, group_of, matching, receivers_of
from controlplane.alerts.pipeline.matchers import read

TIMING = Timing(timedelta(0), timedelta(seconds=1), timedelta(seconds=2))
FULL = {"alertname": "KvFull", "pool": "chat", "engine": "e1", "node": "n1"}
KNOWN = frozenset({"oncall", "chat-team", "log"})


def route(name: str, *matchers: str, goes_on: bool = False, **fields: Any) -> Route:
    given = {"receivers": ("oncall",), "group_by": ("alertname",), **fields}
    return Route(name, read(matchers), given["receivers"], given["group_by"], TIMING, goes_on)


def test_without_a_route_alerts_of_a_rule_share_their_name_and_pool() -> None:
    group = group_of([], FULL, "warning", "rule")
    assert (group.route, group.labels) == ("", {"alertname": "KvFull", "pool": "chat"})
    assert group == group_of([], {**FULL, "engine": "e2"}, "critical", "rule")
    assert group.fingerprint != group_of([], {**FULL, "pool": "code"}, "warning", "rule").fingerprint
    # Of what has no pool, the name alone.
    assert group_of([], {"alertname": "DiskFull", "node": "n1"}, "info", "rule").labels == {"alertname": "DiskFull"}


def test_without_a_route_what_an_event_tells_of_stands_alone() -> None:
    assert group_of([], FULL, "critical", "event").labels == FULL


def test_the_first_route_that_matches_groups_and_its_name_is_part_of_the_group() -> None:
    routes = [route("other", 'alertname="X"'), route("nodes", 'node!=""', group_by=("node",)), route("all")]
    group = group_of(routes, FULL, "warning", "rule")
    assert (group.route, group.labels) == ("nodes", {"node": "n1"})
    again = group_of([route("renamed", group_by=("node",))], FULL, "warning", "rule")
    assert again.fingerprint != group.fingerprint


def test_a_route_may_group_by_severity_by_all_labels_or_by_none() -> None:
    assert group_of([route("a", group_by=("severity",))], FULL, "critical", "event").labels == {"severity": "critical"}
    assert group_of([route("a", group_by=("...",))], FULL, "critical", "event").labels == FULL
    assert group_of([route("a", group_by=())], FULL, "critical", "event").labels == {}


def test_matching_ends_with_the_first_that_does_not_go_on() -> None:
    routes = [route("log", goes_on=True), route("chat", 'pool="chat"'), route("rest")]
    assert [each.name for each in matching(routes, FULL)] == ["log", "chat"]
    assert [each.name for each in matching(routes, {})] == ["log", "rest"]


@pytest.mark.parametrize(
    ("routes", "reached"),
    [
        ([], None),
        ([route("a", 'pool="code"')], None),
        ([route("a", receivers=("chat-team",))], {"chat-team"}),
        ([route("a", receivers=("log",), goes_on=True), route("b", receivers=("oncall",))], {"log", "oncall"}),
        # A name that is gone takes no page with it, and a list that is empty means it.
        ([route("a", receivers=("gone",))], None),
        ([route("a", receivers=("gone", "log"))], {"log"}),
        ([route("a", receivers=())], set()),
    ],
)
def test_receivers_are_those_of_the_routes_and_else_all(routes: list[Route], reached: set[str] | None) -> None:
    assert receivers_of(routes, FULL, KNOWN) == reached


@given(st.dictionaries(st.sampled_from("abc"), st.sampled_from("12")), st.lists(st.sampled_from("abc"), unique=True))
def test_alerts_share_a_group_exactly_where_its_labels_are_the_same(labels: dict[str, str], by: list[str]) -> None:
    routes = [route("r", group_by=tuple(by))]
    for other in ({}, {"a": "1"}, {"a": "1", "b": "2"}, {"c": "1"}):
        alike = all(labels.get(name) == other.get(name) for name in by)
        same = group_of(routes, labels, "info", "rule") == group_of(routes, other, "info", "rule")
        assert same is alike
