"""Laws of patches and slices, for any history of the configuration."""

from __future__ import annotations

import sys
import threading
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controlplane.configs.head import Head
from controlplane.configs.public import public_form
from wire.canonical import check_canonical, content_hash, diff_patch, merge_patch
from wire.snapshot import GatewaySnapshot, NodeSnapshot
from wire.snapshot_checks import decode_snapshot

AT = datetime(2026, 1, 1, tzinfo=UTC)
NODES = ("n-1", "n-2", "n-3")
POOLS = ("p-1", "p-2")
MODELS = ("m-1", "m-2")

_model = st.fixed_dictionaries(
    {"max_context_tokens": st.just(4096), "default_max_tokens": st.integers(1, 9), "max_tokens": st.just(9)}
)
_engine = st.fixed_dictionaries(
    {
        "url": st.sampled_from(["http://10.0.0.1:8000", "http://10.0.0.2:8000"]),
        "kind": st.just("vllm"),
        "pool": st.sampled_from(POOLS),
        "served_model": st.just("m"),
        "cordoned": st.booleans(),
    },
    optional={"node": st.sampled_from(NODES), "api_key_encrypted": st.sampled_from(["sealed-1", "sealed-2"])},
)
_act = st.fixed_dictionaries(
    {
        "node": st.sampled_from(NODES),
        "action": st.just("sleep"),
        "order": st.integers(1, 3),
        "issued_at_ms": st.just(1),
        "expires_at_ms": st.just(2),
    },
    optional={"engine": st.just("e-1"), "arguments": st.just({"level": 1})},
)
ACTS = tuple(digit * 32 for digit in "abc")
_node = st.booleans().map(lambda cordoned: {"cordoned": cordoned})


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    """A whole configuration without broken references; a young one lacks some sections."""
    whole: dict[str, Any] = {
        "models": {name: draw(_model) for name in MODELS},
        "pools": {name: {"model": draw(st.sampled_from(MODELS))} for name in POOLS},
        "engines": draw(st.dictionaries(st.sampled_from(["e-1", "e-2", "e-3"]), _engine)),
        "tenants": draw(
            st.dictionaries(
                st.sampled_from(["a", "b"]),
                st.fixed_dictionaries({"weight": st.integers(1, 3)}, optional={"tpm_limit": st.integers(0, 2)}),
            )
        ),
        "nodes": {name: {"name": name, **draw(_node)} for name in draw(st.sets(st.sampled_from(NODES)))},
        "acts": draw(st.dictionaries(st.sampled_from(ACTS), _act)),
    }
    return {section: entries for section, entries in whole.items() if entries or draw(st.booleans())}


def growing(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As the publisher leaves it: a section that was there once stays, if only empty."""
    there: set[str] = set()
    for content in history:
        content.update({section: {} for section in there - content.keys()})
        there |= content.keys()
    return history


histories = st.lists(configurations(), min_size=2, max_size=6).map(growing)


def unsealed(sealed: str) -> str:
    return sealed.replace("sealed", "key")


def follow(history: list[dict[str, Any]]) -> list[Head]:
    """Heads derived one from the other, their slices asked for on the way, as streams do."""
    heads = [Head(1, history[0], AT, unsealed)]
    for number, content in enumerate(history[1:], 2):
        ask_all(heads[-1])
        heads.append(heads[-1].next(number, diff_patch(heads[-1].content, content), AT))
    return heads


def ask_all(head: Head) -> dict[tuple[str, str], str]:
    wanted = [("gateway", "any"), *(("node", name) for name in NODES)]
    return {target: head.slice(*target).hash for target in wanted}


@given(histories)
def test_a_derived_head_tells_every_target_what_a_fresh_one_would(history: list[dict[str, Any]]) -> None:
    for head, content in zip(follow(history), history, strict=True):
        assert head.content == content
        assert ask_all(head) == ask_all(Head(head.number, content, AT, unsealed))


@given(histories)
def test_a_patch_from_any_revision_leads_to_the_newest_slice(history: list[dict[str, Any]]) -> None:
    heads = follow(history)
    for kind, name in (("gateway", "any"), *(("node", node) for node in NODES)):
        newest = heads[-1].slice(kind, name)
        for head in heads:
            before = head.slice(kind, name)
            merged = merge_patch(before.content, diff_patch(before.content, newest.content))
            assert content_hash(merged) == newest.hash


@given(histories)
def test_the_inverse_takes_a_revision_back(history: list[dict[str, Any]]) -> None:
    for before, after in pairwise(history):
        assert merge_patch(after, diff_patch(after, before)) == before


@given(histories)
def test_a_slice_that_did_not_change_is_the_same_object(history: list[dict[str, Any]]) -> None:
    heads = follow(history)
    for before, after in pairwise(heads):
        for node in NODES:
            told, tells = before.slice("node", node), after.slice("node", node)
            pools_same = before.content["pools"] == after.content["pools"]
            engines_same = before.content.get("engines") == after.content.get("engines")
            nodes_same = before.content.get("nodes") == after.content.get("nodes")
            acts_same = told.content["acts"] == tells.content["acts"]
            if pools_same and engines_same and nodes_same and acts_same:
                assert told is tells
        gateways_parts = [
            {section: entries for section, entries in head.content.items() if section not in ("nodes", "acts")}
            for head in (before, after)
        ]
        if gateways_parts[0] == gateways_parts[1]:
            assert before.slice("gateway", "any") is after.slice("gateway", "any")


@given(configurations())
def test_targets_can_read_every_slice(content: dict[str, Any]) -> None:
    head = Head(1, content, AT, unsealed)
    gateway = head.slice("gateway", "any").content
    check_canonical(gateway)
    assert isinstance(decode_snapshot(gateway), GatewaySnapshot)
    for node in NODES:
        slice = head.slice("node", node).content
        check_canonical(slice)
        decoded = decode_snapshot(slice)
        assert isinstance(decoded, NodeSnapshot)
        own = {act_id: act for act_id, act in content.get("acts", {}).items() if act["node"] == node}
        assert {act_id: {"node": node, **act} for act_id, act in slice["acts"].items()} == own
        assert decoded.acts.keys() == own.keys()
        for name, engine in decoded.engines.items():
            whole = content["engines"][name]
            assert (engine.served_model, engine.cordoned) == (whole["served_model"], whole["cordoned"])
        assert decoded.engines.keys() == {
            name for name, engine in content.get("engines", {}).items() if engine.get("node") == node
        }


@given(configurations())
def test_gateways_get_keys_in_clear_and_nobody_else_gets_any(content: dict[str, Any]) -> None:
    head = Head(1, content, AT, unsealed)
    for name, engine in content.get("engines", {}).items():
        told = head.slice("gateway", "any").content["engines"][name]
        assert "api_key_encrypted" not in told
        assert told.get("api_key") == (unsealed(sealed) if (sealed := engine.get("api_key_encrypted")) else None)
    for node in NODES:
        assert "key" not in str(head.slice("node", node).content)
    assert "sealed" not in str(public_form(content))


def test_an_unreadable_key_leaves_its_engine_without_one() -> None:
    engine = {"url": "http://10.0.0.1:1", "kind": "vllm", "pool": "p", "served_model": "m", "api_key_encrypted": "x"}
    head = Head(1, {"engines": {"e": engine}}, AT, lambda _: None)
    assert "api_key" not in head.slice("gateway", "any").content["engines"]["e"]


def test_one_tenant_of_ten_thousand_is_a_patch_below_a_kilobyte() -> None:
    tenants = {f"tenant-{i}": {"weight": 1, "blocked": False, "tpm_limit": 60_000} for i in range(10_000)}
    head = Head(1, {"tenants": tenants}, AT, unsealed)
    after = head.next(2, {"tenants": {"tenant-77": {"tpm_limit": 1}}}, AT)
    before, now = head.slice("gateway", "any").content, after.slice("gateway", "any").content
    assert diff_patch(before, now) == {"tenants": {"tenant-77": {"tpm_limit": 1}}}
    assert now["tenants"]["tenant-78"] is before["tenants"]["tenant-78"]


def test_slices_are_cut_while_the_next_heads_are_derived() -> None:
    """Heads that follow each other share slices; many threads ask old ones and the newest."""
    nodes = [f"n-{i}" for i in range(3000)]
    engine = {"url": "http://10.0.0.1:1", "kind": "vllm", "pool": "p", "served_model": "m", "node": "n-1"}
    first = Head(1, {"pools": {"p": {"model": "m"}}, "engines": {"e": engine}}, AT, unsealed)
    second = first.next(2, {"tenants": {"a": {"weight": 1}}}, AT)
    done = threading.Event()

    def ask() -> None:
        for name in nodes:
            first.slice("node", name)
        done.set()

    interval = sys.getswitchinterval()
    asking = threading.Thread(target=ask)
    sys.setswitchinterval(1e-6)
    try:
        asking.start()
        while not done.is_set():
            second.next(3, {"engines": {"e": {"cordoned": True}}}, AT)
    finally:
        sys.setswitchinterval(interval)
        asking.join()
    assert second.slice("node", nodes[0]) is first.slice("node", nodes[0])


def test_what_a_pool_desires_of_its_engines_reaches_their_nodes_and_no_gateway():
    engine = {"pool": "p", "node": "n1", "url": "http://h:1", "kind": "vllm", "served_model": "m"}
    content = {"pools": {"p": {"model": "m"}, "q": {"model": "m"}}, "engines": {"e": engine}, "nodes": {}}
    before = Head(1, content, AT, unsealed)
    told, untouched = before.slice("gateway", "g"), before.slice("node", "n2")
    assert "arguments" not in before.slice("node", "n1").content["engines"]["e"]
    desired = {"engine_arguments": {"max-num-seqs": 64}, "adapter_folders": {"support": "/srv/support"}}
    after = before.next(2, {"pools": {"p": desired}}, AT)
    entry = after.slice("node", "n1").content["engines"]["e"]
    assert (entry["arguments"], entry["adapters"]) == ({"max-num-seqs": 64}, {"support": "/srv/support"})
    assert after.slice("node", "n2") is untouched
    assert after.slice("gateway", "g").hash == told.hash
    gone = after.next(3, {"pools": {"p": dict.fromkeys(desired)}}, AT)
    assert gone.slice("node", "n1") == before.slice("node", "n1")
