from __future__ import annotations

from typing import Any

import pytest

from controlplane.core.errors import Refused
from controlplane.telemetry.recording.fields import GROUPS_MAX, RULES_MAX, checked

RULE: dict[str, Any] = {"record": "pool:up:sum", "expr": "sum by (pool) (up)"}


def document(*rules: dict[str, Any], **group: Any) -> dict[str, Any]:
    return {"groups": [{"name": "fleet", "rules": list(rules), **group}]}


def problems(given: object) -> dict[str, str]:
    """Rule by path."""
    with pytest.raises(Refused) as refused:
        checked(given)
    return {problem.path: problem.rule for problem in refused.value.problems}


def test_what_is_not_set_is_left_out():
    assert checked(document({**RULE, "labels": {}}, interval=None)) == document(RULE)


def test_an_expression_may_have_several_lines():
    lines = "sum by (pool) (\n\tup\n)"
    assert checked(document({**RULE, "expr": f"{lines}\n"})) == document({**RULE, "expr": lines})


def test_labels_tell_two_rules_of_one_name_apart():
    given = document({**RULE, "labels": {"tier": "a"}}, {**RULE, "labels": {"tier": "b"}}, interval="1m30s")
    assert checked(given) == given


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"record": "up"}, "record"),
        ({"record": "pool:up"}, "record"),
        ({"record": "pool::sum"}, "record"),
        ({"record": "pool:up:sum\n"}, "record"),
        ({"record": "pool:" + "u" * 200 + ":sum"}, "record"),
        ({"expr": ""}, "expr"),
        ({"expr": " \n"}, "expr"),
        ({"expr": 'up{a="\x00"}'}, "expr"),
        ({"expr": "up or up" + " or up" * 5000}, "expr"),
        ({"expr": "sum by ("}, "expr"),
        ({"expr": "up[5m]"}, "expr"),
        ({"expr": "up[5m:1m]"}, "expr"),
        ({"expr": '"text"'}, "expr"),
        ({"expr": "holt_winters(up[5m], 0.5, 0.5)"}, "expr"),
        ({"expr": 1}, "expr"),
        ({"labels": {"__name__": "x"}}, "labels/__name__"),
        ({"labels": {"a-b": "x"}}, "labels/a-b"),
        ({"labels": {"a": ""}}, "labels/a"),
        ({"labels": {"a": "{{ $value }}"}}, "labels/a"),
        ({"labels": {"a": 1}}, "labels/a"),
        ({"alert": "Down"}, "alert"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_where_it_stands(changes, path):
    assert list(problems(document({"record": "node:up:sum", "expr": "up"}, {**RULE, **changes}))) == [
        f"/groups/0/rules/1/{path}"
    ]


@pytest.mark.parametrize("interval", ["", "5s", "2h", "10500ms", "minute", "-1m", "5000000y", 60])
def test_an_interval_that_cannot_be_is_refused(interval):
    assert list(problems(document(RULE, interval=interval))) == ["/groups/0/interval"]


def test_every_problem_is_named():
    given = document({"record": "up", "expr": "("}, {"expr": "up"}, interval="1s")
    assert problems(given).keys() == {
        "/groups/0/rules/0/record", "/groups/0/rules/0/expr", "/groups/0/rules/1/record", "/groups/0/interval",
    }  # fmt: skip


def test_names_that_stand_twice_are_refused():
    given = {"groups": [{"name": "a", "rules": [RULE]}, {"name": "a", "rules": [{**RULE, "expr": "vector(1)"}]}]}
    assert problems(given) == {"/groups/1/name": "unique", "/groups/1/rules/0/record": "unique"}


@pytest.mark.parametrize("given", [None, [], "text", {}, {"groups": {}}, {"groups": [1]}])
def test_another_form_is_refused(given):
    assert problems(given)


def test_groups_and_rules_are_bounded():
    rules = [{**RULE, "labels": {"n": str(number)}} for number in range(RULES_MAX)]
    assert checked(document(*rules)) == document(*rules)
    two = {"groups": [*document(*rules)["groups"], {"name": "more", "rules": [{"record": "a:b:c", "expr": "up"}]}]}
    assert problems(two) == {"/groups": "too_long"}
    groups = [{"name": str(number), "rules": []} for number in range(GROUPS_MAX + 1)]
    assert problems({"groups": groups}) == {"/groups": "too_long"}
