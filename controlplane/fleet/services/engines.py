"""Engines: served endpoints, their address, key and cordon."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Conflict
from controlplane.core.nouns import Noun, present
from controlplane.core.sealed import seal, sealed_at
from controlplane.fleet import models as rows
from controlplane.fleet.cold_start import cold_start
from controlplane.fleet.drift import drift_of
from controlplane.fleet.services.nodes import NODES, open_acts
from controlplane.fleet.services.pools import POOLS
from wire.canonical import Document
from wire.problems import Problem
from wire.snapshot_checks import engine_url_problem


def _engine_url(url: str) -> str:
    if wrong := engine_url_problem(url):
        raise PydanticCustomError("url", "{message}", {"message": wrong})
    return url


class EngineFields(f.Fields):
    """`node` null: reached directly, without an agent. `api_key` is written and never read; null removes it.

    `kv_capacity_tokens` is for engines that no agent watches; an agent's report replaces it.
    """

    url: Annotated[str, Field(max_length=300), AfterValidator(_engine_url)]
    pool: f.Name
    served_model: Annotated[f.Text, Field(min_length=1, max_length=200)]
    kind: Literal["vllm", "sglang", "tgi", "llamacpp", "trtllm", "triton", "ollama"] = f.default_of(rows.Engine, "kind")
    node: f.Name | None = None
    kv_capacity_tokens: f.Count | None = None
    api_key: Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[\x21-\x7e]+$")] | None = None


class EngineNoun(Noun[rows.Engine]):
    noun = "engine"
    row = rows.Engine
    fields = EngineFields
    section = "engines"
    # After their pools.
    order: ClassVar[int] = 45
    related = ("pool__model", "node")

    def describe(self, row: rows.Engine) -> Document:
        """`api_key_set_at` changes with the key, so that the audit shows that it was changed."""
        return {
            "name": row.name,
            "url": row.url,
            "pool": row.pool.name,
            "served_model": row.served_model,
            "kind": row.kind,
            "node": row.node.name if row.node else None,
            "kv_capacity_tokens": row.kv_capacity_tokens,
            "api_key_set_at": f.iso(sealed_at(row.encrypted_api_key)) if row.encrypted_api_key else None,
            "cordoned": row.cordoned,
            "node_cordoned": row.node.cordoned if row.node else False,
            "held_out_by": row.held_out_by or None,
            "state": row.state,
            "condition": row.condition if row.reported_at else None,
            "version": row.version or None,
            "error": row.error or None,
            "reported_at": f.iso(row.reported_at),
        }

    def assign(self, row: rows.Engine, values: Document) -> list[Problem]:
        problems: list[Problem] = []
        if pool := POOLS.referenced("/pool", values["pool"], problems):
            row.pool = pool
        row.node = NODES.referenced("/node", values["node"], problems) if values["node"] else None
        super().assign(row, {name: values[name] for name in ("url", "served_model", "kind", "kv_capacity_tokens")})
        if "api_key" in values:
            row.encrypted_api_key = seal(values["api_key"]) if values["api_key"] else ""
        return problems

    def wire_form(self, row: rows.Engine) -> Document:
        """The API key stays encrypted until a gateway's slice is made (`core.sealed.unseal`)."""
        return present(
            {
                "url": row.url,
                "kind": row.kind,
                "pool": row.pool.name,
                "served_model": row.served_model,
                "node": row.node.name if row.node else None,
                "kv_capacity_tokens": row.kv_capacity_tokens,
                "cordoned": row.takes_no_work,
                "api_key_encrypted": row.encrypted_api_key or None,
            }
        )

    def from_wire(self, content: Document) -> Document:
        """What people set of it: no API key, no cordon, nor a capacity that its node's agent measured."""
        set_by_people = {"url", "pool", "served_model", "kind", "node"}
        if "node" not in content:
            set_by_people.add("kv_capacity_tokens")
        return {field: value for field, value in content.items() if field in set_by_people}

    def check(self, name: str, given: Any) -> Document:
        fields = super().check(name, given)
        problems = []
        if "api_key" in given:
            message = f"a key is a secret and stands in no document; set it by PATCH /api/v1/engines/{name}"
            problems.append(Problem("/api_key", "secret", message))
        if fields.keys() >= {"node", "kv_capacity_tokens"}:
            message = "the agent of its node measures it; leave it out"
            problems.append(Problem("/kv_capacity_tokens", "measured", message))
        f.refuse_if(problems)
        return fields

    def write(self, unit: UnitOfWork, name: str, row: rows.Engine | None, fields: Document | None) -> None:
        """As all are written, but an engine that is there keeps its key, and the capacity that was measured."""
        if fields is None or row is None:
            super().write(unit, name, row, fields)
            return
        values = f.read(self.fields, fields).model_dump(exclude={"api_key"})
        if values["node"] is not None:
            del values["kv_capacity_tokens"]
        self.update(unit, name, values)

    def users(self, row: rows.Engine) -> list[str]:
        return open_acts(row)

    def measured(self, unit: UnitOfWork, row: rows.Engine, kv_capacity_tokens: int) -> rows.Engine:
        """Take over the KV capacity that the agent measured. The caller holds the engine's row."""
        before = self.describe(row)
        row.kv_capacity_tokens = kv_capacity_tokens
        return self._save(unit, row, row.name, before)

    def cordon(self, unit: UnitOfWork, name: str) -> rows.Engine:
        """Let the engine take no new work."""
        return self._set_cordon(unit, name, True)

    def uncordon(self, unit: UnitOfWork, name: str) -> rows.Engine:
        """Take the engine's own cordon back; that of its node holds on."""
        return self._set_cordon(unit, name, False)

    def hold_out(self, unit: UnitOfWork, name: str, by: str) -> rows.Engine:
        """Let the engine take no new work, beside and independent of people's cordons.

        `by`: what of the program asks for it, as `rollout 12`, and takes over what its node had asked for. Raises
        Conflict where another holds it out.
        """
        row = self.lock(name)
        if row.held_out_by not in ("", by, LEAVING):
            raise Conflict(f"engine {name!r} is held out of service by {row.held_out_by} already", code="held_out")
        return self._set_held_out(unit, row, by)

    def put_back(self, unit: UnitOfWork, name: str, by: str) -> rows.Engine:
        """End what `hold_out` began; where something else holds the engine out, or nothing does, nothing changes."""
        row = self.lock(name)
        return self._set_held_out(unit, row, "" if row.held_out_by == by else row.held_out_by)

    def left_or_back(self, unit: UnitOfWork, row: rows.Engine, leaving: bool) -> rows.Engine:
        """Hold out what its node is about to end, and put it back when it is there again. The caller holds the row."""
        return self._set_held_out(unit, row, LEAVING if leaving else "")

    def _set_held_out(self, unit: UnitOfWork, row: rows.Engine, by: str) -> rows.Engine:
        if row.held_out_by == by:
            return row
        before = self.describe(row)
        row.held_out_by = by
        return self._save(unit, row, row.name, before)

    def _set_cordon(self, unit: UnitOfWork, name: str, cordoned: bool) -> rows.Engine:
        row = self.lock(name)
        before = self.describe(row)
        row.cordoned = cordoned
        return self._save(unit, row, name, before)


# What holds an engine out whose node says that its process is about to be ended.
LEAVING = "its node, which is about to end it"
ENGINES = EngineNoun()


def described_with_facts(engines: Sequence[rows.Engine]) -> list[Document]:
    """The public forms with what agents tell of the engines' starts, files and probes; null where they tell nothing.

    Beside them what differs from what their pools desire.
    """
    return [{**ENGINES.describe(row), **facts_of(row), **drift_of(row)} for row in engines]


def facts_of(row: rows.Engine) -> Document:
    """What its agent told last of its start, its files and its probes; null and empty where that is nothing."""
    told = row.facts
    started_at_ms = told.get("started_at_ms")
    return {
        "started_at": None if started_at_ms is None else f.iso(f.from_epoch_ms(started_at_ms)),
        "arguments": told.get("arguments", {}),
        "start_phases_ms": told.get("start_phases_ms", {}),
        "cold_start": cold_start(told.get("start_phases_ms", {}), row.pool.model.cold_start_budget_ms),
        "model_path": told.get("model_path"),
        "model_bytes": told.get("model_bytes"),
        "probes": told.get("probes", {}),
        "versions": told.get("versions", {}),
        "digests": told.get("digests", {}),
        "max_length_tokens": told.get("max_length_tokens"),
    }
