from __future__ import annotations

from policy.adapters import asked_as, serves
from policy.routing import RequestFacts, choose_route, match_route, routes_for
from wire.snapshot import Engine, Fallback, Match, Model, Pool, Route

BASE = Model(max_context_tokens=8192, default_max_tokens=50, max_tokens=400)
SQL = Model(max_context_tokens=8192, default_max_tokens=50, max_tokens=400, adapter="sql")
POOLS = {
    "plain": Pool("base"),
    "adapted": Pool("base", adapters={"sql": True}),
    "spare": Pool("base", adapters={"sql": True, "law": True}),
    "other": Pool("other"),
}
OTHER = Model(max_context_tokens=8192, default_max_tokens=50, max_tokens=400)
ENGINE = Engine(url="http://e:1", kind="vllm", pool="adapted", served_model="llama-8b")


def routed(routes, model=SQL, draw=0.0, name=""):
    name = name or ("sql-8b" if model is SQL else "base")
    facts = RequestFacts(name, "acme", "", 10, 10)
    return choose_route(routes_for(routes, name, model, POOLS), facts, draw)


def test_an_engine_is_asked_for_the_adapter_where_its_pool_holds_it():
    assert asked_as(SQL, POOLS["adapted"], ENGINE) == "sql"
    assert asked_as(BASE, POOLS["adapted"], ENGINE) == "llama-8b"
    assert asked_as(SQL, POOLS["plain"], ENGINE) == "llama-8b"


def test_a_pool_serves_its_own_model_and_the_adapters_that_it_holds():
    assert [name for name, pool in POOLS.items() if serves(pool, "sql-8b", SQL)] == ["adapted", "spare"]
    assert [name for name, pool in POOLS.items() if serves(pool, "base", BASE)] == ["plain", "adapted", "spare"]


def test_of_a_rules_pools_those_without_the_adapter_are_left_out():
    routes = {
        "all": Route(
            0, pools={"plain": 900, "adapted": 100}, fallbacks={"plain": Fallback(0), "spare": Fallback(1)}
        )
    }  # fmt: skip
    for draw in (0.0, 0.5, 0.99):
        assert routed(routes, draw=draw).pools == ("adapted", "spare")
    assert routed(routes, BASE).pools == ("adapted", "plain", "spare")


def test_a_rule_that_leads_to_no_pool_with_it_is_passed_over():
    routes = {
        "plain": Route(0, pools={"plain": 1000, "adapted": 0}),
        "never": Route(1, match=Match(models={"base": True}), reject="no"),
        "all": Route(2, pools={"spare": 1000}),
    }
    assert (routed(routes).rule, routed(routes).pools) == ("all", ("spare",))
    assert routed({"plain": routes["plain"]}).reason == "no_route"


def test_a_rule_that_refuses_refuses_adapters_as_well():
    assert routed({"no": Route(0, reject="closed")}).reason == "rejected"


def test_a_rule_for_any_model_leads_to_those_of_its_pools_that_serve_it():
    routes = {
        "all": Route(0, pools={"other": 900, "plain": 100}, fallbacks={"other": Fallback(0), "spare": Fallback(1)}),
    }
    assert routed(routes, BASE, 0.9).pools == ("plain", "spare")
    assert routed(routes, OTHER, 0.9, "other").pools == ("other",)


def test_a_rule_for_any_model_that_has_no_such_pool_is_passed_over_and_said_so():
    routes = {"first": Route(0, pools={"other": 1000}), "then": Route(1, pools={"plain": 1000})}
    assert routed(routes, BASE).rule == "then"
    facts = RequestFacts("base", "acme", "", 10, 10)
    tried = match_route(routes, facts, 0.0, routes_for(routes, "base", BASE, POOLS)).tried
    assert [each.mismatch for each in tried] == ["none of its pools serves model 'base'", ""]


def test_a_rule_that_names_the_model_leads_where_it_says():
    routes = {"moved": Route(0, match=Match(models={"base": True}), pools={"other": 1000})}
    assert routed(routes, BASE).pools == ("other",)
