from __future__ import annotations

from typing import Any

import pytest

from tests.wire.examples import gateway_content, node_content
from wire.problems import type_problems
from wire.snapshot import GatewaySnapshot, NodeSnapshot, Route, Snapshot
from wire.snapshot_checks import SnapshotRefused, decode_snapshot, engine_url_problem, route_problems


def refused(content: Any) -> dict[str, str]:
    """path → message of a refusal."""
    with pytest.raises(SnapshotRefused) as refusal:
        decode_snapshot(content)
    return {problem.path: problem.message for problem in refusal.value.problems}


def test_a_whole_gateway_slice_is_read():
    snapshot = decode_snapshot(gateway_content())
    assert isinstance(snapshot, GatewaySnapshot)
    assert snapshot.tenants["acme"].tpm_limit == 60_000
    assert snapshot.pools["short"].breaker.error_permille == 300


def test_a_node_slice_is_read():
    snapshot = decode_snapshot(node_content(e1="https://[::1]:8000"))
    assert isinstance(snapshot, NodeSnapshot)
    assert snapshot.engines["e1"].url == "https://[::1]:8000"


def test_a_field_of_a_later_version_is_ignored():
    content = gateway_content()
    content["tenants"]["acme"]["colour"] = "green"
    content["moons"] = {}
    assert isinstance(decode_snapshot(content), GatewaySnapshot)


def test_every_type_error_is_named_at_its_own_path():
    content = gateway_content()
    content["tenants"]["acme"]["tpm_limit"] = -1
    content["tenants"]["umbrella"]["weight"] = "heavy"
    content["models"]["meta-llama/Llama-3.1-8B"]["max_tokens"] = 1.5
    content["routes"]["all"]["match"]["tenants"]["acme"] = False
    del content["keys"]["ab" * 32]["tenant"]
    content["overrides"] = []
    found = refused(content)
    assert set(found) == {
        "/tenants/acme/tpm_limit",
        "/tenants/umbrella/weight",
        "/models/meta-llama~1Llama-3.1-8B/max_tokens",
        "/routes/all/match/tenants/acme",
        f"/keys/{'ab' * 32}/tenant",
        "/overrides",
    }
    assert found["/tenants/acme/tpm_limit"] == "Expected `int` >= 0"
    assert "missing" in found[f"/keys/{'ab' * 32}/tenant"]


@pytest.mark.parametrize("name", ["Acme", "acme corp", "acme\n", "", "-acme", "a" * 64, "acme/x"])
def test_a_name_that_no_label_or_url_can_carry_is_refused(name):
    content = gateway_content()
    content["tenants"][name] = {}
    assert [problem.rule for problem in type_problems(content, Snapshot)] == ["key"]


@pytest.mark.parametrize(
    ("content", "path"),
    [
        ([], "/"),
        ({}, "/kind"),
        ({"kind": "moon", "schema": 1}, "/kind"),
        ({"kind": "gateway", "schema": 2}, "/schema"),
        ({"kind": "node", "schema": 1}, "/node"),
        ({"kind": "gateway"}, "/schema"),
    ],
)
def test_a_slice_of_another_form_is_refused(content, path):
    assert list(refused(content)) == [path]


def test_every_broken_reference_is_named_at_its_own_path():
    content = gateway_content()
    content["tenants"]["acme"]["models"]["gpt"] = True
    content["tenants"]["acme"]["default_priority_class"] = "vip"
    content["keys"]["ab" * 32]["tenant"] = "initech"
    content["pools"]["short"]["model"] = "llama"
    content["engines"]["e1"]["pool"] = "long"
    content["routes"]["all"]["fallbacks"]["batch"] = {"order": 2}
    content["routes"]["all"]["match"]["tenants"]["hooli"] = True
    content["overrides"]["o1"]["subject"] = "e9"
    found = refused(content)
    assert set(found) == {
        "/tenants/acme/models/gpt",
        "/tenants/acme/default_priority_class",
        f"/keys/{'ab' * 32}/tenant",
        "/pools/short/model",
        "/engines/e1/pool",
        "/routes/all/fallbacks/batch",
        "/routes/all/match/tenants/hooli",
        "/overrides/o1/subject",
    }
    assert found["/overrides/o1/subject"] == "engine 'e9' does not exist"


@pytest.mark.parametrize(
    ("route", "path"),
    [
        ({"order": 1}, "/routes/r"),
        ({"order": 1, "pools": {"short": 1000}, "reject": "no"}, "/routes/r"),
        ({"order": 1, "pools": {"short": 999}}, "/routes/r/pools"),
        (
            {"order": 1, "reject": "no", "match": {"min_prompt_tokens": 5, "max_prompt_tokens": 5}},
            "/routes/r/match/min_prompt_tokens",
        ),
        (
            {"order": 1, "reject": "no", "match": {"min_max_tokens": 6, "max_max_tokens": 5}},
            "/routes/r/match/min_max_tokens",
        ),
    ],
)
def test_a_route_that_cannot_be_followed_is_refused(route, path):
    content = gateway_content()
    content["routes"] = {"r": route}
    assert list(refused(content)) == [path]


def test_a_cascade_asks_a_model_that_its_routes_pools_do_not_serve():
    content = gateway_content()
    model = content["pools"]["short"]["model"]
    content["models"]["tiny"] = dict(content["models"][model])
    content["pools"] |= {"first": {"model": "tiny"}, "twin": {"model": model}}
    cascade = {"pool": "first", "escalate_on": {"empty": True}}
    content["routes"] = {"r": {"order": 1, "pools": {"short": 1000}, "cascade": cascade}}
    decode_snapshot(content)
    cascade["pool"] = "twin"
    assert list(refused(content)) == ["/routes/r/cascade/pool"]


def test_an_alias_stands_for_a_model_and_has_the_name_of_none():
    content = gateway_content()
    (model,) = content["models"]
    content["aliases"] = {"small": {"model": model}}
    decode_snapshot(content)
    content["aliases"] = {model: {"model": model}, "other": {"model": "nobody"}}
    assert list(refused(content)) == ["/aliases/meta-llama~1Llama-3.1-8B", "/aliases/other/model"]


def test_a_route_is_checked_against_plain_names():
    route = Route(order=1, pools={"short": 1000})
    assert route_problems("r", route, {}, {}, {}, {"short": object()}) == []
    assert [p.path for p in route_problems("r", route, set(), set(), set(), set())] == ["/routes/r/pools/short"]


@pytest.mark.parametrize(
    "url", ["http://e1", "https://e1.rack-2.example:8443", "http://127.0.0.1:1", "http://[fe80::1]:65535"]
)
def test_an_engine_address_is_accepted(url):
    assert engine_url_problem(url) is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "e1:8000",
        "ftp://e1",
        "http://",
        "http://user:secret@e1",
        "http://e1/v1",
        "http://e1/",
        "http://e1?x=1",
        "http://e1:0",
        "http://e1:65536",
        "http://e1:80\n",
        "http://e 1",
        "http://e1#x",
        "HTTP://e1:8000:9",
        "http://[:::::]:80",
        "http://[1.2.3.4]:80",
    ],
)
def test_an_engine_address_with_anything_else_in_it_is_refused(url):
    for content in (gateway_content(), node_content(e1="http://e1")):
        content["engines"]["e1"]["url"] = url
        found = refused(content)
        assert list(found) == ["/engines/e1/url"]
        assert "secret" not in found["/engines/e1/url"]


def _with_adapter(**sections):
    model = {"max_context_tokens": 8192, "default_max_tokens": 50, "max_tokens": 400}
    return {
        "kind": "gateway",
        "schema": 1,
        "models": {"base": model, "sql": {**model, "adapter": "sql"}},
        "pools": {"plain": {"model": "base"}, "adapted": {"model": "base", "adapters": {"sql": True}}},
        **sections,
    }


def test_an_adapter_is_routed_to_pools_that_hold_it_and_others_are_named():
    match = {"models": {"sql": True}}
    content = _with_adapter(routes={"sql": {"order": 0, "match": match, "pools": {"adapted": 1000}}})
    decode_snapshot(content)
    content["routes"]["sql"] |= {"fallbacks": {"plain": {"order": 0}}}
    with pytest.raises(SnapshotRefused) as refused:
        decode_snapshot(content)
    (problem,) = refused.value.problems
    assert (problem.path, problem.rule) == ("/routes/sql/fallbacks/plain", "adapter")
    assert problem.message == "pool 'plain' does not hold the adapter 'sql', which model 'sql' is"


def test_no_pool_is_of_an_adapter_alone():
    with pytest.raises(SnapshotRefused) as refused:
        decode_snapshot(_with_adapter(pools={"sql": {"model": "sql"}}))
    assert [(problem.path, problem.rule) for problem in refused.value.problems] == [("/pools/sql/model", "adapter")]


def test_a_pin_is_of_a_name_that_there_is_to_a_model_that_there_is():
    tenants = {"acme": {"pins": {"chat": "base", "base": "sql", "nobody": "base", "sql": "gone"}}}
    with pytest.raises(SnapshotRefused) as refused:
        decode_snapshot(_with_adapter(tenants=tenants, aliases={"chat": {"model": "base"}}))
    assert [problem.path for problem in refused.value.problems] == [
        "/tenants/acme/pins/nobody",
        "/tenants/acme/pins/sql",
    ]
