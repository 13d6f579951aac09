"""What each target is told, cut from the whole configuration. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from controlplane.configs.public import ENCRYPTED_KEY
from wire.canonical import Document, content_hash

SCHEMA_VERSION = 1
GATEWAY_SECTIONS = (
    "tenants",
    "keys",
    "priority_classes",
    "session_limits",
    "cache_policies",
    "models",
    "aliases",
    "pools",
    "engines",
    "routes",
    "overrides",
)
# Fields of a tenant that people alone read.
_OF_PEOPLE = ("display_name",)
# Fields of a pool that say what its engines shall be started with, and what they shall hold.
_OF_NODES = ("engine_arguments", "adapter_folders")
# Token of an engine's API key as stored → the key; None where it cannot be read (the field key was lost).
Decrypt = Callable[[str], str | None]


@dataclass(frozen=True)
class Slice:
    """What one target runs. `hash` is `wire.canonical.content_hash` of `content`."""

    content: Document
    hash: str


def slice_of(content: Document) -> Slice:
    return Slice(content, content_hash(content))


def gateway_engine(engine: Document, decrypt: Decrypt) -> Document:
    """An engine as gateways need it: with its API key in clear, where it has one."""
    if ENCRYPTED_KEY not in engine:
        return engine
    told = {field: value for field, value in engine.items() if field != ENCRYPTED_KEY}
    if (api_key := decrypt(engine[ENCRYPTED_KEY])) is not None:
        told["api_key"] = api_key
    return told


def gateway_pool(pool: Document) -> Document:
    """A pool without what its nodes alone are told."""
    return _without(pool, _OF_NODES)


def gateway_tenant(tenant: Document) -> Document:
    """A tenant without what people alone read."""
    return _without(tenant, _OF_PEOPLE)


def _without(entry: Document, fields: tuple[str, ...]) -> Document:
    """The same object where it has none of the fields."""
    if entry.keys().isdisjoint(fields):
        return entry
    return {field: value for field, value in entry.items() if field not in fields}


def gateway_content(whole: Document, engines: Document) -> Document:
    """A gateway's slice; `engines` in the form of `gateway_engine`. Other sections are shared, not copied."""
    sections = {section: whole.get(section, {}) for section in GATEWAY_SECTIONS}
    pools = {name: gateway_pool(pool) for name, pool in sections["pools"].items()}
    tenants = {name: gateway_tenant(tenant) for name, tenant in sections["tenants"].items()}
    own = {"tenants": tenants, "pools": pools, "engines": engines}
    return {"kind": "gateway", "schema": SCHEMA_VERSION, **sections, **own}


def node_content(node: str, whole: Document, engines: Document, acts: Document) -> Document:
    """A node's slice; `engines` and `acts` are those of this node, as in the whole."""
    pools = whole.get("pools", {})
    return {
        "kind": "node",
        "schema": SCHEMA_VERSION,
        "node": whole.get("nodes", {}).get(node) or {"name": node, "cordoned": False},
        "engines": {name: _node_engine(engine, pools[engine["pool"]]) for name, engine in engines.items()},
        "acts": {
            act_id: {field: value for field, value in act.items() if field != "node"} for act_id, act in acts.items()
        },
    }


def _node_engine(engine: Document, pool: Document) -> Document:
    told = {
        "url": engine["url"],
        "kind": engine["kind"],
        "pool": engine["pool"],
        "model": pool["model"],
        "served_model": engine["served_model"],
        "cordoned": engine.get("cordoned", False),
    }
    desired = {"arguments": pool.get("engine_arguments"), "adapters": pool.get("adapter_folders")}
    return told | {field: value for field, value in desired.items() if value}
