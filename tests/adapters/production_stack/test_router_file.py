from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.production_stack.router_file import Choices, RouterFile, router_file
from tests.adapters.production_stack.router import read
from tests.wire.examples import gateway_content
from wire.snapshot import GatewaySnapshot
from wire.snapshot_checks import SnapshotRefused

NOW_MS = 1_700_000_000_000
PLAIN = Choices("roundrobin", "x-session-id", health_checks=False)
MODEL = "team/chat"


def engine(url: str = "http://10.0.0.5:8000", served_model: str = MODEL, pool: str = "chat", **more: Any) -> Any:
    return {"url": url, "kind": "vllm", "pool": pool, "served_model": served_model, **more}


def snapshot(engines: dict[str, Any], **more: Any) -> GatewaySnapshot:
    models = {name: {"max_context_tokens": 8, "default_max_tokens": 4, "max_tokens": 4} for name in (MODEL, "other")}
    pools = {"chat": {"model": MODEL}, "long": {"model": MODEL, "work": "long"}, "vectors": {"model": "other"}}
    pools["vectors"]["work"] = "embedding"
    content = {"kind": "gateway", "schema": 1, "models": models, "pools": pools, "engines": engines, **more}
    return msgspec.convert(content, GatewaySnapshot)


def made(engines: dict[str, Any], choices: Choices = PLAIN, unix_ms: int = NOW_MS, **more: Any) -> RouterFile:
    return router_file(snapshot(engines, **more), choices, unix_ms)


def override(subject: str, state: str, expires_at_ms: int, kind: str = "pool") -> dict[str, Any]:
    return {
        "subject_kind": kind, "subject": subject, "state": state, "owner": "o", "reason": "r",
        "expires_at_ms": expires_at_ms,
    }  # fmt: skip


def test_engines_of_all_pools_become_backends_in_a_stable_order():
    file = made(
        {
            "b": engine("http://node-2.example:8001", pool="long"),
            "a": engine("http://localhost:8000"),
            "v": engine("https://10.0.0.9", "other", "vectors"),
        }
    )
    got = read(file.content)
    assert got.backends == (
        ("https://10.0.0.9", "other"),
        ("http://localhost:8000", MODEL),
        ("http://node-2.example:8001", MODEL),
    )
    assert got.config.static_model_types == "embeddings,chat,chat"
    assert (got.config.routing_logic, got.config.session_key, got.aliases) == ("roundrobin", None, {})
    assert file.left_out == ()


def test_a_session_needs_its_header_and_health_checks_are_as_chosen():
    got = read(made({"a": engine()}, Choices("session", "x-user", health_checks=True)).content)
    assert (got.config.routing_logic, got.config.session_key) == ("session", "x-user")
    assert got.config.static_backend_health_checks is True


def test_a_cordoned_engine_is_no_backend():
    file = made({"a": engine(), "b": engine("http://10.0.0.6:8000", cordoned=True)})
    assert [url for url, _ in read(file.content).backends] == ["http://10.0.0.5:8000"]
    assert file.left_out == ()


def test_a_pool_or_engine_forced_open_takes_its_engines_out_until_the_override_ends():
    engines = {"a": engine(), "b": engine("http://10.0.0.6:8000", pool="long")}
    for subject, kind in (("long", "pool"), ("b", "engine")):
        rows = {
            "o": override(subject, "open", NOW_MS + 5_000, kind),
            "closed": override("long", "closed", NOW_MS + 9_000),
        }
        file = made(engines, overrides=rows)
        assert [url for url, _ in read(file.content).backends] == ["http://10.0.0.5:8000"]
        assert file.changes_at_ms == NOW_MS + 5_000
        later = made(engines, unix_ms=NOW_MS + 5_000, overrides=rows)
        assert len(read(later.content).backends) == 2
        assert later.changes_at_ms == NOW_MS + 9_000


def test_no_backend_at_all_is_refused_because_the_router_would_keep_those_it_had():
    with pytest.raises(SnapshotRefused, match="no engine is left") as refused:
        made({"a": engine(cordoned=True), "b": engine("http://bare:8000")})
    assert [(p.path, p.rule) for p in refused.value.problems] == [("/engines", "no_backend"), ("/engines/b", "router")]


@pytest.mark.parametrize(
    "unfit",
    [engine("http://bare-name:8000"), engine("http://[::1]:8000"), engine(served_model="a,b"), engine(served_model="")],
)
def test_an_engine_that_the_router_cannot_hold_is_left_out_and_named(unfit):
    file = made({"good": engine(), "odd": unfit})
    assert read(file.content).backends == (("http://10.0.0.5:8000", MODEL),)
    assert [problem.path for problem in file.left_out] == ["/engines/odd"]


def test_clients_reach_a_model_by_its_own_name_and_its_aliases_whatever_its_engines_call_it():
    aliases = {"chat": {"model": MODEL}, "served": {"model": MODEL}, "unserved": {"model": "other"}}
    file = made({"a": engine(served_model="served")}, aliases=aliases)
    assert read(file.content).aliases == {MODEL: "served", "chat": "served"}
    assert file.left_out == ()


def test_a_name_with_a_colon_cannot_be_an_alias():
    file = made({"a": engine()}, aliases={"chat:latest": {"model": MODEL}, "chat": {"model": MODEL}})
    assert read(file.content).aliases == {"chat": MODEL}
    assert [problem.path for problem in file.left_out] == ["/aliases/chat:latest"]


def test_engines_that_call_one_model_by_two_names_are_not_mixed():
    file = made({"a": engine(served_model="x"), "b": engine("http://10.0.0.6:8000")})
    assert read(file.content).backends == (("http://10.0.0.6:8000", MODEL),)
    assert [problem.path for problem in file.left_out] == ["/engines/a"]


def test_one_name_never_leads_to_two_models():
    for name in (MODEL, "other"):
        other = engine("http://10.0.0.6:8000", name, "vectors" if name == MODEL else "chat")
        mine = engine(served_model=MODEL) if name == MODEL else engine(served_model="other", pool="vectors")
        file = made({"a": mine, "b": other})
        assert read(file.content).backends == (("http://10.0.0.5:8000", name),)
        assert [problem.path for problem in file.left_out] == ["/engines/b"]
    aliased = {"a": engine(), "b": engine("http://10.0.0.6:8000", "gpt", "vectors")}
    file = made(aliased, aliases={"gpt": {"model": MODEL}})
    assert read(file.content).backends == (("http://10.0.0.5:8000", MODEL),)
    assert [problem.path for problem in file.left_out] == ["/engines/b"]


def test_what_the_router_does_not_do_is_said_in_words():
    whole = msgspec.convert(gateway_content(), GatewaySnapshot)
    said = "; ".join(router_file(whole, PLAIN, whole.overrides["o1"].expires_at_ms).not_enforced)
    for word in ("keys", "limits", "priority", "conditions", "fallbacks", "queues"):
        assert word in said
    assert "cache policies" not in said
    pinned = made({"a": engine()}, tenants={"acme": {"pins": {MODEL: MODEL}}}).not_enforced
    assert "tenants' pins: everybody gets what an alias stands for" in pinned
    assert made({"a": engine()}).not_enforced == ("admission by KV cache, queues and automatic breakers of pools",)


NAMES = st.sampled_from([MODEL, "other", "x", "y:1", "a,b"])
ENGINES = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(
        engine,
        st.sampled_from(
            ["http://10.0.0.5:8000", "http://h.example", "http://bare", "http://[::1]:1", "http://9.9.9.9:9"]
        ),
        NAMES,
        st.sampled_from(["chat", "long", "vectors"]),
        cordoned=st.booleans(),
    ),
)
ALIASES = st.dictionaries(
    st.sampled_from(["x", "y", "y:1", "gpt"]), st.fixed_dictionaries({"model": st.sampled_from([MODEL, "other"])})
)


@given(ENGINES, ALIASES)
def test_the_router_reads_every_file_and_no_request_reaches_another_model(engines, aliases):
    try:
        got = read(made(engines, aliases=aliases).content)
    except SnapshotRefused:
        return
    models = {"chat": MODEL, "long": MODEL, "vectors": "other"}
    may = {(e["url"], e["served_model"], models[e["pool"]]) for e in engines.values() if not e["cordoned"]}
    for asked in (MODEL, "other", *aliases):
        meant = aliases[asked]["model"] if asked in aliases else asked
        name = got.aliases.get(asked, asked)
        for url, model in got.backends:
            if model == name:
                assert (url, model, meant) in may
