"""Routes: the rules as people read them, their forms, their order, and the tester."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import DjangoAssertNumQueries

from controlplane.fleet.services import MODELS, POOLS
from controlplane.routing.services import ROUTES
from controlplane.tenants.services import PRIORITY_CLASSES
from controlplane.web.shown.route_order import in_turn, moved
from controlplane.web.shown.route_words import conditions, mismatch_words, named
from controlplane.web.views import routes as routes_view
from policy.routing import RequestFacts, why_not
from tests.web.conftest import digest_of, write
from tests.web.hardware import MODEL, add_engine
from wire.snapshot import Match

pytestmark = pytest.mark.django_db
NAMES = st.text("abcdefg", min_size=1, max_size=3)
TRIAL = {"try_model": MODEL, "try_tenant": "acme", "try_priority_class": "batch", "try_prompt_tokens": "900"}


@pytest.fixture
def pools(acme: str) -> None:
    """The pools "chat", which has an engine, and "long" and "small", which have none."""
    add_engine("llama-a", None)
    write(lambda unit: POOLS.create(unit, "long", {"model": MODEL}))
    write(lambda unit: MODELS.create(unit, "tiny", {"max_context_tokens": 8192}))
    write(lambda unit: POOLS.create(unit, "small", {"model": "tiny"}))
    write(lambda unit: PRIORITY_CLASSES.create(unit, "batch", {"rank": 90}))


@pytest.fixture
def rules(pools: None) -> None:
    route("long-prompts", order=10, match={"min_prompt_tokens": 8000}, pools={"long": 1000})
    route("nights", order=20, match={"priority_classes": ["batch"]}, reject="batch runs at night")
    route("all", order=30, pools={"chat": 700, "long": 300}, fallbacks={"long": 1})


def route(name: str, **fields: Any) -> None:
    write(lambda unit: ROUTES.create(unit, name, fields))


def page(client: Client, path: str, **parameters: str) -> str:
    answer = client.get(path, parameters)
    assert answer.status_code == 200
    return answer.content.decode()


def applied(client: Client, path: str, **typed: Any) -> None:
    reviewed = client.post(path, {**typed, "step": "review"})
    digest = digest_of(reviewed.content.decode())
    answer = client.post(path, {**typed, "step": "apply", "digest": digest, "reason": "a test"})
    assert answer.status_code == 302, answer.content.decode()
    assert answer["Location"].startswith("/routes/?change=")


def test_rules_are_listed_in_their_order_and_said_in_words(rules: None, viewer: Client) -> None:
    shown = page(viewer, "/routes/")
    assert shown.index("route-long-prompts") < shown.index("route-nights") < shown.index("route-all")
    assert "prompt of 8,000 tokens and more" in shown
    assert "of class batch" in shown
    assert "batch runs at night" in shown
    assert "every request" in shown
    assert "70 %" in shown[shown.index("route-all") :]
    assert "/edit/" not in shown


def test_a_rule_is_made_by_its_fields_and_changed(pools: None, operator: Client) -> None:
    typed = {
        "order": "10", "models": [MODEL], "tenants": "acme", "min_prompt_tokens": "100", "pool_0": "chat",
        "weight_0": "62.5", "pool_2": "long", "weight_2": "37.5", "fallback_1": "long", "lines": "3",
    }  # fmt: skip
    applied(operator, "/routes-new/", name="acme-long", **typed)
    made = ROUTES.describe(ROUTES.get("acme-long"))
    assert made["pools"] == {"chat": 625, "long": 375}
    assert made["fallbacks"] == {"long": 1}
    assert (made["match"]["models"], made["match"]["tenants"]) == ([MODEL], ["acme"])
    assert made["match"]["min_prompt_tokens"] == 100
    assert made["cascade"] is None
    cascade = {"cascade_pool": "small", "escalate_on": ["empty"], "cascade_max_prompt_tokens": "4000"}
    changed = {**typed, "pool_0": "", "weight_0": "", "weight_2": "100", **cascade}
    applied(operator, "/routes/acme-long/edit/", **changed)
    after = ROUTES.describe(ROUTES.get("acme-long"))
    assert after["pools"] == {"long": 1000}
    assert after["cascade"]["escalate_on"] == ["empty"]
    assert after["cascade"]["max_prompt_tokens"] == 4000
    applied(operator, "/routes/acme-long/delete/")
    assert ROUTES.find("acme-long") is None


def test_the_review_calls_what_changes_as_the_form_does(rules: None, operator: Client) -> None:
    typed = {"order": "30", "models": [MODEL], "pool_0": "chat", "weight_0": "90", "pool_1": "long", "weight_1": "10"}
    reviewed = operator.post("/routes/all/edit/", {**typed, "lines": "3", "step": "review"}).content.decode()
    assert "Which requests › Models" in reviewed
    assert "<del>70 %</del>" in reviewed
    assert "<ins>90 %</ins>" in reviewed


def test_a_form_that_is_sent_as_it_came_changes_nothing(rules: None, operator: Client) -> None:
    route("old", order=40, pools={"chat": 1000}, fallbacks={"long": 70}, match={"max_max_tokens": 9})
    typed = {"order": "40", "max_max_tokens": "9", "pool_0": "chat", "weight_0": "100.0", "fallback_0": "long"}
    answer = operator.post("/routes/old/edit/", {**typed, "lines": "3", "step": "review"})
    assert "Nothing would change." in answer.content.decode()


# Filled in fields, and what is said at one of them.
REFUSED = [
    ({"pool_0": "chat", "weight_0": "60"}, "The shares sum to 60 %; they must sum to 100 %."),
    ({"pool_0": "chat"}, "Give its share."),
    ({"weight_0": "100"}, "Choose the pool that gets this share."),
    ({"pool_0": "chat", "weight_0": "50", "pool_1": "chat", "weight_1": "50"}, "“chat” is given twice."),
    ({}, "Give either pools with their shares, or the message of a refusal."),
    ({"reject": "no", "pool_0": "chat", "weight_0": "100"}, "Give either pools"),
    ({"reject": "no", "tenants": "nobody"}, "nobody"),
    ({"reject": "no", "min_prompt_tokens": "9", "max_prompt_tokens": "9"}, "must be below"),
    ({"pool_0": "chat", "weight_0": "100", "cascade_pool": "long"}, "escalate_on"),
    ({"reject": "no", "name": "test"}, "names a REST call"),
]


def test_a_form_refuses_with_the_field_and_keeps_what_was_typed(pools: None, operator: Client) -> None:
    for typed, said in REFUSED:
        form = {"name": "kept", "order": "77", "lines": "3", "step": "review", **typed}
        answer = operator.post("/routes-new/", form)
        assert answer.status_code == 422, typed
        shown = answer.content.decode()
        assert said in shown, typed
        assert 'value="77"' in shown, typed
    assert not ROUTES.keys()


def test_taking_traffic_from_a_pool_says_from_whom(
    rules: None, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes_view, "tenants_of", lambda pools: f"acme sent 7 requests there ({','.join(pools)}).")
    typed = {"order": "30", "pool_0": "chat", "weight_0": "10", "pool_1": "long", "weight_1": "90", "lines": "3"}
    reviewed = operator.post("/routes/all/edit/", {**typed, "step": "review"}).content.decode()
    assert "Fewer requests go to chat. acme sent 7 requests there (chat)." in reviewed
    moved_only = {**typed, "weight_0": "70", "weight_1": "30", "fallback_0": "long", "order": "31", "step": "review"}
    assert "acme sent" not in operator.post("/routes/all/edit/", moved_only).content.decode()


def test_more_lines_come_without_a_word_about_what_is_missing(pools: None, operator: Client) -> None:
    typed = {"name": "half", "lines": "3", "pool_0": "chat", "weight_0": "x", "models": [MODEL], "step": "more"}
    shown = operator.post("/routes-new/", typed).content.decode()
    assert 'name="pool_5"' in shown
    assert 'value="half"' in shown
    assert 'value="x"' in shown
    assert "errorlist" not in shown
    assert "checked" in shown


def test_a_rule_moves_before_its_neighbour(rules: None, operator: Client) -> None:
    reviewed = page(operator, "/routes/nights/move/up/")
    assert "<del>20</del>" in reviewed
    assert "<ins>10</ins>" in reviewed
    applied(operator, "/routes/nights/move/up/")
    assert in_turn({name: ROUTES.get(name).order for name in ROUTES.keys()}) == ["nights", "long-prompts", "all"]  # noqa: SIM118 - a noun's function
    assert "Nothing would change." in page(operator, "/routes/nights/move/up/")
    assert operator.get("/routes/nights/move/sideways/").status_code == 404


@given(st.dictionaries(NAMES, st.integers(0, 5), min_size=1), st.data())
def test_moving_changes_the_place_of_two_neighbours_alone(orders: dict[str, int], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(orders)))
    before = in_turn(orders)
    at = before.index(name)
    after = in_turn({**orders, **moved(orders, name, "down")})
    wanted = before[:at] + before[at + 1 : at + 2] + [name] + before[at + 2 :]
    assert after == wanted
    assert in_turn({**orders, **moved(orders, name, "up")})[max(0, at - 1)] == name


def test_the_tester_says_which_rule_matched_and_why_the_others_did_not(rules: None, viewer: Client) -> None:
    shown = page(viewer, "/routes/", **TRIAL, try_max_tokens="50000")
    tested = shown[shown.index('id="tested"') :]
    assert "nights" in tested
    assert "batch runs at night" in tested
    assert "the prompt&#x27;s tokens, 900, are below 8,000" in tested
    assert "<del>50,000</del> → 4,096" in tested
    assert "/api/v1/routes/test" in tested


def test_the_tester_shows_what_stands_in_the_pools(rules: None, viewer: Client) -> None:
    shown = page(viewer, "/routes/", **{**TRIAL, "try_priority_class": "", "try_max_tokens": "10"})
    assert "This field is required." in shown
    write(lambda unit: PRIORITY_CLASSES.create(unit, "interactive", {"rank": 1}))
    tested = page(viewer, "/routes/", **{**TRIAL, "try_priority_class": "interactive", "try_max_tokens": "10"})
    tested = tested[tested.index('id="tested"') :]
    assert "1 engine takes work" in tested
    assert "no engine takes work" in tested
    assert "the priority class interactive is not one of batch" in tested


def test_a_draft_is_tested_before_it_is_saved(rules: None, operator: Client) -> None:
    draft = {"name": "first", "order": "1", "pool_0": "chat", "weight_0": "100", "lines": "3"}
    shown = operator.post("/routes-new/", {**draft, **TRIAL, "try_max_tokens": "1", "step": "test"}).content.decode()
    tested = shown[shown.index('id="tested"') :]
    assert "first" in tested
    assert "nights" not in tested
    assert ROUTES.find("first") is None
    edited = {**draft, "order": "20", "priority_classes": ["batch"], "step": "test", "try_max_tokens": "1"}
    shown = operator.post("/routes/nights/edit/", {**edited, **TRIAL}).content.decode()
    tested = shown[shown.index('id="tested"') :]
    assert "batch runs at night" not in tested
    assert "chat" in tested


def test_a_whole_request_is_tested_as_its_client_sends_it(rules: None, viewer: Client) -> None:
    assert "Body (JSON)" in page(viewer, "/routes-test/")
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 7}
    typed = {"path": "/v1/chat/completions", "body": json.dumps(body), "tenant": "acme"}
    shown = viewer.post("/routes-test/", typed).content.decode()
    tested = shown[shown.index('id="tested"') :]
    assert "all" in tested
    assert "estimated" in tested
    refused = viewer.post("/routes-test/", {**typed, "body": '{\n"model": ]'})
    assert refused.status_code == 422
    assert "line 2, column 10" in refused.content.decode()
    nobody = viewer.post("/routes-test/", {**typed, "tenant": ""}).content.decode()
    assert "give either" in nobody


def test_a_prompt_that_never_fits_is_refused_whatever_the_rules_say(rules: None, viewer: Client) -> None:
    longest = {"try_prompt_tokens": "131072", "try_max_tokens": "1"}
    tested = page(viewer, "/routes/", **{**TRIAL, **longest})
    assert "context_length_exceeded" in tested
    assert "context_length_exceeded" not in page(viewer, "/routes/", **TRIAL, try_max_tokens="1")


def test_no_rule_and_no_route_say_what_to_do_next(acme: str, operator: Client, viewer: Client) -> None:
    assert "/routes-new/" in page(operator, "/routes/")
    assert "An operator can make one." in page(viewer, "/routes/")


def test_a_name_in_any_script_shows_as_itself(pools: None, viewer: Client) -> None:
    text = "<script>alert('ş')</script> “gece”"
    route("r", order=1, reject=text)
    shown = page(viewer, "/routes/")
    assert "<script>alert" not in shown
    assert "&lt;script&gt;alert(&#x27;ş&#x27;)&lt;/script&gt; “gece”" in shown


@pytest.mark.parametrize("step", ["more", "test"])
def test_the_form_says_its_rest_call_however_it_is_shown_again(step: str, rules: None, operator: Client) -> None:
    typed = {"name": "new", "order": "40", "lines": "3", "pool_0": "chat", "weight_0": "100", **TRIAL, "step": step}
    made = operator.post("/routes-new/", {**typed, "try_max_tokens": "10"}).content.decode()
    assert "-X POST" in made
    assert "/api/v1/routes?reason=WHY" in made
    changed = operator.post("/routes/all/edit/", {**typed, "weight_0": "many"}).content.decode()
    assert "-X PATCH" in changed
    assert "/api/v1/routes/all?reason=WHY" in changed


def test_many_rules_take_few_queries(
    pools: None, viewer: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(60):
        route(f"r-{number}", order=number, pools={"chat": 1000}, match={"tenants": ["acme"]})
    with django_assert_max_num_queries(12):
        page(viewer, "/routes/")


def test_many_names_are_counted() -> None:
    assert named([]) == "nobody"
    assert named(["a", "b"]) == "a or b"
    assert named([f"t{number}" for number in range(9)]).endswith("t4 or 4 others")
    match = dict.fromkeys(("models", "tenants", "priority_classes", "min_prompt_tokens", "max_prompt_tokens"))
    sizes = {"min_max_tokens": 10, "max_max_tokens": 5000}
    assert conditions({**match, **sizes}) == ["max_tokens of 10 to below 5,000 tokens"]


@pytest.mark.parametrize(
    "match",
    [
        Match(models={"m": True}), Match(tenants={"t": True}), Match(priority_classes={"p": True}),
        Match(min_prompt_tokens=10), Match(max_prompt_tokens=5), Match(min_max_tokens=10), Match(max_max_tokens=5),
    ],
)  # fmt: skip
def test_each_reason_of_the_policy_is_said_in_the_readers_words(match: Match) -> None:
    reason = why_not(match, RequestFacts("o'x", "other", "other", 7, 7))
    assert reason
    assert mismatch_words(reason) != reason


def test_deleting_a_rule_says_what_becomes_of_its_requests(rules: None, operator: Client) -> None:
    assert "take the next rule that does" in page(operator, "/routes/all/delete/")
