"""What limits promise: the ways that requests take, checked against the routing itself, and the arithmetic."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.promises import UNMEASURED, LargestLimits, Map, Means, Promise, Reach, largest_limits, promise
from policy.routing import RequestFacts, choose_route, in_order, routes_for
from wire.snapshot import (
    Alias,
    Cascade,
    Fallback,
    Match,
    Model,
    NameSet,
    Pool,
    Route,
    ScheduledLimits,
    TemporaryLimits,
    Tenant,
)

SMALL = Model(max_context_tokens=4_000, default_max_tokens=256, max_tokens=1_000)
LARGE = Model(max_context_tokens=32_000, default_max_tokens=256, max_tokens=4_000)
MODELS = {"small": SMALL, "large": LARGE}
# Named in a rule, which then leads both of them to its pools.
ANY: NameSet = {"small": True, "large": True}
POOLS = {"p": Pool("small"), "q": Pool("large")}


def reached(routes: dict[str, Route], tenant: Tenant, name: str = "acme", models: dict[str, Model] = MODELS) -> Any:
    return Map(routes, models, POOLS, ["gold", "bulk"]).reached_by(name, tenant)


def to(order: int = 0, pool: str = "p", **match: Any) -> Route:
    return Route(order, Match(**{"models": ANY, **match}), pools={pool: 1000})


def test_a_route_for_all_brings_all_of_it():
    assert reached({"all": to()}, Tenant()) == {"p": Reach(1000, 32_000)}


def test_a_rule_for_any_model_brings_each_to_the_pools_that_serve_it():
    split = Route(0, pools={"p": 700, "q": 300})
    assert reached({"split": split}, Tenant()) == {"p": Reach(1000, 4_000), "q": Reach(1000, 32_000)}


def test_only_its_own_models_count():
    assert reached({"all": to()}, Tenant(models={"small": True})) == {"p": Reach(1000, 4_000)}
    assert reached({"l": to(models={"large": True})}, Tenant(models={"small": True})) == {}


def test_what_an_alias_that_it_may_use_stands_for_counts():
    tenant = Tenant(models={"newest": True})
    for model, context in (("small", 4_000), ("large", 32_000)):
        known = Map({"all": to()}, MODELS, POOLS, [], {"newest": Alias(model)})
        assert known.reached_by("acme", tenant) == {"p": Reach(1000, context)}


def test_weights_split_what_comes():
    split = Route(0, Match(models=ANY), pools={"p": 700, "q": 300, "r": 0}, fallbacks={"s": Fallback(0)})
    assert reached({"split": split}, Tenant()) == {"p": Reach(700, 32_000), "q": Reach(300, 32_000)}


def test_the_way_that_brings_most_counts():
    routes = {
        "short": Route(0, Match(models=ANY, max_prompt_tokens=1_000), pools={"p": 200, "q": 800}),
        "rest": to(1),
    }
    assert reached(routes, Tenant()) == {"p": Reach(1000, 32_000), "q": Reach(800, 999 + 4_000)}


def test_what_comes_after_a_rule_for_every_size_is_not_reached():
    assert reached({"a": to(0), "b": to(1, "never")}, Tenant()) == {"p": Reach(1000, 32_000)}
    assert reached({"a": Route(0, reject="closed"), "b": to(1)}, Tenant()) == {}


def test_rules_for_others_are_passed_over():
    routes = {"a": to(0, "theirs", tenants={"other": True}), "b": to(1)}
    assert reached(routes, Tenant()) == {"p": Reach(1000, 32_000)}
    assert reached(routes, Tenant(), "other") == {"theirs": Reach(1000, 32_000)}


def test_a_class_that_it_may_not_use_opens_no_way():
    routes = {"a": to(0, "fast", priority_classes={"gold": True}), "b": to(1)}
    assert set(reached(routes, Tenant(priority_classes={"bulk": True}))) == {"p"}
    assert set(reached(routes, Tenant(priority_classes={"bulk": True}, default_priority_class="gold"))) == {"fast", "p"}
    assert set(reached(routes, Tenant())) == {"fast", "p"}


def test_a_cap_on_output_shortens_the_context():
    assert reached({"a": to(max_prompt_tokens=101)}, Tenant(max_tokens_cap=50))["p"].context_tokens == 150
    assert reached({"a": to(max_prompt_tokens=101, max_max_tokens=31)}, Tenant())["p"].context_tokens == 130


def test_a_prompt_that_no_model_takes_opens_no_way():
    assert reached({"a": to(min_prompt_tokens=4_000)}, Tenant(models={"small": True})) == {}
    assert reached({"a": to(min_prompt_tokens=3_999)}, Tenant(models={"small": True})) == {"p": Reach(1000, 4_000)}


def test_a_cascade_asks_its_own_pool_first_and_may_escalate_all():
    cascade = Cascade("little", {"empty": True}, max_prompt_tokens=500)
    routes = {"a": Route(0, Match(models=ANY), pools={"p": 1000}, cascade=cascade)}
    assert reached(routes, Tenant()) == {"p": Reach(1000, 32_000), "little": Reach(1000, 4_500)}


def test_a_blocked_tenant_reaches_nothing():
    assert reached({"a": to()}, Tenant(blocked=True)) == {}


names = st.sampled_from(["x", "y"])
sets = st.none() | st.dictionaries(st.sampled_from(["x", "y"]), st.just(True), min_size=1)
sizes = st.none() | st.integers(0, 60)


@st.composite
def drawn_routes(draw: st.DrawFn) -> dict[str, Route]:
    routes = {}
    for number in range(draw(st.integers(0, 5))):
        fields: dict[str, Any] = {"models": draw(sets), "tenants": draw(sets), "priority_classes": draw(sets)}
        fields |= {bound: draw(sizes) for bound in ("min_prompt_tokens", "max_prompt_tokens", "max_max_tokens")}
        match = Match(**{name: value for name, value in fields.items() if value is not None})
        pools = draw(st.none() | st.sampled_from([{"p": 1000}, {"p": 400, "q": 600}, {"q": 1000}]))
        kind: Any = {"reject": "no"} if pools is None else {"pools": pools}
        routes[str(number)] = Route(draw(st.integers(0, 3)), match, **kind)
    return routes


@given(drawn_routes(), names, sets, sets, names, names | st.just(""), st.integers(0, 49), st.integers(1, 30))
def test_no_request_takes_a_way_that_is_not_on_the_map(
    routes: dict[str, Route], name: str, models: Any, classes: Any, model: str, chosen: str, prompt: int, output: int
):
    every = {"x": Model(50, 10, 30), "y": Model(40, 10, 20)}
    fields = {"models": models, "priority_classes": classes}
    tenant = Tenant(**{field: value for field, value in fields.items() if value is not None})
    allowed = (models is None or model in models) and (classes is None or not chosen or chosen in classes)
    if not allowed or prompt >= every[model].max_context_tokens:
        return
    output = min(output, every[model].max_tokens, every[model].max_context_tokens - prompt)
    pools = {"p": Pool("x"), "q": Pool("y")}
    led = routes_for(in_order(routes), model, every[model], pools)
    result = choose_route(led, RequestFacts(model, name, chosen, prompt, output), 0.5)
    reach = Map(routes, every, pools, ["x", "y"]).reached_by(name, tenant)
    if result.pools:
        pool = result.pools[0]
        assert reach[pool].context_tokens >= prompt + output
        weights = led[result.rule].pools
        assert isinstance(weights, dict)
        assert reach[pool].permille * sum(weights.values()) >= 1000 * weights[pool]


def test_the_largest_limits_are_those_of_any_hour():
    night = ScheduledLimits(0, 0, 480, tpm_limit=900, max_parallel_requests=2)
    given_more = TemporaryLimits("ann", "launch", 10**12, max_parallel_requests=50)
    tenant = Tenant(tpm_limit=600, max_parallel_requests=5, schedule={"night": night}, temporary=given_more)
    assert largest_limits(tenant) == LargestLimits(900, None, 50)


def test_hours_with_a_limit_do_not_bound_the_others():
    assert largest_limits(Tenant(schedule={"night": ScheduledLimits(0, 0, 480, tpm_limit=9)})).tpm_limit is None


REACH = Reach(1000, 8_000)
STAY, SIZE = Means(12.0, None), Means(None, 1_500.5)


@pytest.mark.parametrize(
    ("limits", "means", "expected"),
    [
        pytest.param((60_000, None, None), STAY, Promise(12_000, "residence"), id="tokens a minute"),
        pytest.param((None, 30, None), STAY, Promise(48_000, "residence"), id="requests a minute"),
        pytest.param((None, None, 4), UNMEASURED, Promise(32_000, "longest_context"), id="requests at once"),
        pytest.param((None, None, 4), SIZE, Promise(6_004, "mean_context"), id="of the mean size"),
        pytest.param((None, None, 4), Means(None, 9e9), Promise(32_000, "longest_context"), id="no longer than it may"),
        pytest.param((None, 30, None), Means(12.0, 1_500.5), Promise(9_006, "residence"), id="each of the mean size"),
        pytest.param((60_000, None, None), SIZE, Promise(None, "no_residence"), id="a size is no residence"),
        pytest.param((60_000, None, 4), STAY, Promise(12_000, "residence"), id="the least holds"),
        pytest.param((600_000, None, 4), STAY, Promise(32_000, "longest_context"), id="the least holds, at once"),
        pytest.param((60_000, None, 4), UNMEASURED, Promise(32_000, "longest_context"), id="residence unknown"),
        pytest.param((60_000, None, None), UNMEASURED, Promise(None, "no_residence"), id="a rate alone"),
        pytest.param((None, None, None), STAY, Promise(None, "no_limit"), id="no limit"),
        pytest.param((0, None, None), STAY, Promise(0, "residence"), id="nothing allowed"),
    ],
)
def test_what_limits_promise(limits: Any, means: Means, expected: Promise):
    assert promise(LargestLimits(*limits), REACH, means) == expected


def test_a_part_of_the_work_is_a_part_of_the_promise():
    assert promise(LargestLimits(None, None, 1), Reach(333, 1_000)).tokens == 333
    assert promise(LargestLimits(None, None, 1), Reach(1, 1)).tokens == 1
