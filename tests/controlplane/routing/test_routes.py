from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.models import AuditEntry
from controlplane.routing.models import Route
from controlplane.routing.services import ROUTES
from tests.controlplane.core.configuration import compiled
from wire import snapshot
from wire.problems import type_problems

RULE = {
    "name": "long-prompts",
    "order": 10,
    "match": {"models": ["org/llama"], "tenants": ["acme"], "min_prompt_tokens": 1024},
    "pools": {"long": 1000},
    "fallbacks": {"short": 1},
}


def problems_of(answer):
    assert answer.status_code == 422, answer.content
    return {(problem["path"], problem["rule"]) for problem in answer.json()["problems"]}


def test_a_route_compiles_into_its_wire_form(pools):
    assert pools.post("/routes", RULE).status_code == 201
    content = compiled("routes", "long-prompts")
    assert content == {
        "order": 10,
        "match": {"models": {"org/llama": True}, "tenants": {"acme": True}, "min_prompt_tokens": 1024},
        "pools": {"long": 1000},
        "fallbacks": {"short": {"order": 1}},
    }
    assert type_problems(content, snapshot.Route) == []
    read = pools.get("/routes/long-prompts").json()
    assert read["match"]["models"] == ["org/llama"]
    assert read["match"]["max_prompt_tokens"] is None
    assert read["reject"] is None


def test_conditions_merge_and_pools_are_replaced_whole(pools):
    pools.post("/routes", RULE)
    patch = {"match": {"tenants": None, "max_prompt_tokens": 9000}, "pools": {"short": 1000}, "fallbacks": None}
    item = pools.patch("/routes/long-prompts", patch).json()["item"]
    assert item["match"]["models"] == ["org/llama"]
    assert item["match"]["tenants"] is None
    assert item["match"]["min_prompt_tokens"] == 1024
    assert item["match"]["max_prompt_tokens"] == 9000
    assert item["pools"] == {"short": 1000}
    assert item["fallbacks"] is None


def test_a_rule_becomes_a_refusal(pools):
    pools.post("/routes", RULE)
    answer = pools.patch("/routes/long-prompts", {"pools": None, "fallbacks": None, "reject": "not at night"})
    assert answer.json()["patch"]["routes"]["long-prompts"] == {
        "pools": None,
        "fallbacks": None,
        "reject": "not at night",
    }


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"pools": {"long": 999}}, ("/pools", "sum")),
        ({"pools": {}}, ("/pools", "too_short")),
        ({"pools": None}, ("/", "one_of")),
        ({"reject": "no"}, ("/", "one_of")),
        ({"match": {"max_prompt_tokens": 1024}}, ("/match/min_prompt_tokens", "range")),
        ({"match": {"colour": "red"}}, ("/match/colour", "extra_forbidden")),
        ({"match": {"tenants": "acme"}}, ("/match/tenants", "list_type")),
        ({"order": -1}, ("/order", "range")),
        ({"pools": {"A/b": 1000}}, ("/pools/A~1b", "pattern")),
        ({"pools": {"long": "1000"}}, ("/pools/long", "int_type")),
    ],
)
def test_a_bad_rule_is_refused_where_it_is_wrong(pools, fields, expected):
    pools.post("/routes", RULE)
    before = Route.objects.values().get()
    assert expected in problems_of(pools.patch("/routes/long-prompts", fields))
    assert Route.objects.values().get() == before


def test_a_rule_that_names_what_is_not_there_is_refused(pools):
    answer = pools.post("/routes", {**RULE, "pools": {"nowhere": 1000}})
    assert {rule for _, rule in problems_of(answer)} == {"reference"}
    assert not Route.objects.exists()
    assert not AuditEntry.objects.filter(noun="route").exists()


def test_the_name_of_the_tester_is_taken(pools):
    assert problems_of(pools.post("/routes", {**RULE, "name": "test"})) == {("/name", "reserved")}


def test_a_deleted_route_is_gone(pools):
    pools.post("/routes", RULE)
    assert pools.delete("/routes/long-prompts").json()["patch"] == {"routes": {"long-prompts": None}}
    assert pools.get("/routes/long-prompts").status_code == 404


_names = st.lists(st.sampled_from(["a", "b", "c"]), unique=True)
_matches = st.fixed_dictionaries(
    {},
    optional={
        "models": _names,
        "tenants": _names,
        "priority_classes": _names,
        "min_prompt_tokens": st.integers(0, 100),
        "max_prompt_tokens": st.integers(101, 200),
    },
)
_pools = st.integers(0, 1000).map(lambda share: {"long": share, "short": 1000 - share})
_cascades = st.fixed_dictionaries(
    {"pool": st.just("tiny"), "escalate_on": st.lists(st.sampled_from(["length", "empty"]), min_size=1)},
    optional={"max_prompt_tokens": st.integers(0, 9)},
)
_fallbacks = st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 9), min_size=1)


@pytest.mark.django_db
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    order=st.integers(0, 9),
    match=_matches,
    pools=_pools,
    fallbacks=st.none() | _fallbacks,
    cascade=st.none() | _cascades,
)
def test_what_a_route_compiles_into_restores_it(order, match, pools, fallbacks, cascade):
    with unit_of_work(SYSTEM, "a test", dry_run=True) as unit:
        section = ROUTES.as_section()
        fields = {"order": order, "match": match, "pools": pools, "fallbacks": fallbacks, "cascade": cascade}
        ROUTES.create(unit, "r", fields)
        content = section.compile("r")
        assert section.restore is not None
        ROUTES.update(
            unit, "r", {"order": 99, "match": {"models": ["z"]}, "pools": None, "reject": "no", "cascade": None}
        )
        section.restore(unit, "r", content)
        assert section.compile("r") == content
        section.restore(unit, "r", None)
        # The names are made up: nothing is left for the check of references.
        unit.touched.clear()
