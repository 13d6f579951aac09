"""The first rule that matches decides, and every rule before it says why it did not."""

from __future__ import annotations

import random
from collections import Counter
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from policy.routing import RequestFacts, choose_route, holds, in_order, match_route, pool_by_weight, why_not
from wire.snapshot import Fallback, Match, Route

FACTS = RequestFacts(model="m", tenant="t", priority_class="c", prompt_tokens=1024, max_tokens=512)


def names(*each: str) -> dict[str, Literal[True]]:
    return dict.fromkeys(each, True)


def test_size_routing_splits_at_the_bound():
    routes = {
        "short": Route(order=1, match=Match(max_prompt_tokens=1024), pools={"a": 1000}),
        "long": Route(order=2, match=Match(min_prompt_tokens=1024), pools={"b": 1000}),
    }
    assert match_route(routes, FACTS._replace(prompt_tokens=1023), 0).pools == ("a",)
    assert match_route(routes, FACTS, 0).pools == ("b",)


def test_every_rule_that_was_tried_says_why_it_did_not_match():
    routes = {
        "z-model": Route(order=1, match=Match(models=names("x")), pools={"p": 1000}),
        "a-model": Route(order=1, match=Match(models=names("y")), pools={"p": 1000}),
        "tenant": Route(order=2, match=Match(tenants=names("u", "v")), pools={"p": 1000}),
        "class": Route(order=3, match=Match(priority_classes={}), pools={"p": 1000}),
        "low": Route(order=4, match=Match(min_prompt_tokens=2000), pools={"p": 1000}),
        "high": Route(order=5, match=Match(max_max_tokens=512), pools={"p": 1000}),
        "hit": Route(order=6, pools={"p": 1000}),
        "never": Route(order=7, pools={"p": 1000}),
    }
    result = match_route(routes, FACTS, 0)
    assert (result.reason, result.rule) == ("matched", "hit")
    assert result.tried == (
        ("a-model", "model 'm' is not one of y"),
        ("z-model", "model 'm' is not one of x"),
        ("tenant", "tenant 't' is not one of u, v"),
        ("class", "priority class 'c' is not one of none"),
        ("low", "prompt_tokens 1024 is below 2000"),
        ("high", "max_tokens 512 is not below 512"),
        ("hit", ""),
    )


def test_of_a_rule_for_many_names_some_are_said_and_how_many_more_there_are():
    match = Match(tenants=names(*(f"t-{number:03}" for number in range(1000))))
    assert why_not(match, FACTS) == "tenant 't' is not one of t-000, t-001, t-002, t-003, t-004 and 995 more"


def test_fallbacks_follow_in_their_order_without_the_drawn_pool():
    route = Route(
        order=1,
        pools={"a": 500, "b": 500},
        fallbacks={"z": Fallback(order=1), "b": Fallback(order=2), "c": Fallback(order=2)},
    )
    assert match_route({"r": route}, FACTS, 0.0).pools == ("a", "z", "b", "c")
    assert match_route({"r": route}, FACTS, 0.5).pools == ("b", "z", "c")


def test_a_reject_carries_its_message_and_nothing_matching_is_named():
    rejected = match_route({"r": Route(order=1, reject="not here")}, FACTS, 0)
    assert (rejected.reason, rejected.message, rejected.pools) == ("rejected", "not here", ())
    assert match_route({}, FACTS, 0).reason == "no_route"


WEIGHTS = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(0, 1000), min_size=1).filter(
    lambda weights: sum(weights.values()) > 0
)
DRAWS = st.floats(0, 1, exclude_max=True)


@given(WEIGHTS, DRAWS)
def test_a_pool_without_weight_is_never_drawn(weights: dict[str, int], draw: float):
    assert weights[pool_by_weight(weights, draw)] > 0


@given(WEIGHTS)
def test_pools_are_drawn_in_proportion_to_their_weights(weights: dict[str, int]):
    total = sum(weights.values())
    drawn = Counter(pool_by_weight(weights, (number + 0.5) / total) for number in range(total))
    assert drawn == {pool: weight for pool, weight in weights.items() if weight}


def test_a_route_without_any_weight_is_an_error():
    with pytest.raises(ValueError, match="weight"):
        pool_by_weight({"a": 0}, 0.5)


BOUND = st.integers(0, 50) | st.just(UNSET)
SET = st.dictionaries(st.sampled_from(["m", "n"]), st.just(True), max_size=2) | st.just(UNSET)
ROUTES = st.dictionaries(
    st.text("abc", min_size=1, max_size=2),
    st.builds(
        Route,
        order=st.integers(0, 3),
        match=st.builds(Match, models=SET, min_prompt_tokens=BOUND, max_prompt_tokens=BOUND),
        pools=st.just({"p": 1000}),
    ),
    max_size=6,
)


@given(ROUTES, st.integers(0, 60), st.randoms(use_true_random=False))
def test_the_first_rule_in_order_that_holds_wins_whatever_the_maps_order(
    routes: dict[str, Route], prompt_tokens: int, dice: random.Random
):
    facts = FACTS._replace(prompt_tokens=prompt_tokens)
    shuffled = list(routes.items())
    dice.shuffle(shuffled)
    result = match_route(dict(shuffled), facts, 0)
    assert result == match_route(routes, facts, 0)
    assert choose_route(in_order(routes), facts, 0) == result._replace(tried=())
    assert all(holds(route.match, facts) == (why_not(route.match, facts) == "") for route in routes.values())
    holding = [
        name
        for name, route in in_order(routes).items()
        if (route.match.models is UNSET or "m" in route.match.models)
        and (route.match.min_prompt_tokens is UNSET or prompt_tokens >= route.match.min_prompt_tokens)
        and (route.match.max_prompt_tokens is UNSET or prompt_tokens < route.match.max_prompt_tokens)
    ]
    assert result.rule == (holding[0] if holding else "")
    assert [why == "" for _, why in result.tried] == [False] * (len(result.tried) - bool(holding)) + [True] * bool(
        holding
    )
