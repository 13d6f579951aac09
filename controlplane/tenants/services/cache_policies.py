"""Cache policies: what gateways may answer without an engine, for the tenants and models that name one."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec.structs import fields as fields_of
from pydantic import Field

from controlplane.core import fields as f
from controlplane.core.nouns import Noun, as_set, present
from controlplane.tenants import models as rows
from wire import snapshot
from wire.canonical import Document

_EXACT = {field.name: field.default for field in fields_of(snapshot.ExactCache)}
_SEMANTIC = {field.name: field.default for field in fields_of(snapshot.SemanticCache)}


class ExactCacheFields(f.Fields):
    """Answers to the same request again."""

    ttl_ms: f.Millis = _EXACT["ttl_ms"]
    max_entries: f.Positive = _EXACT["max_entries"]


class SemanticCacheFields(f.Fields):
    """Answers to a question that means the same: at least `similarity_permille` by `embedding_model`.

    `only_verified`: those alone that somebody approved or that were verified. A question with one of the words
    `time_bound` in it is kept for `time_bound_ttl_ms`.
    """

    embedding_model: f.ModelName
    similarity_permille: f.PerMille = _SEMANTIC["similarity_permille"]
    ttl_ms: f.Millis = _SEMANTIC["ttl_ms"]
    max_entries: f.Positive = _SEMANTIC["max_entries"]
    only_verified: bool = _SEMANTIC["only_verified"]
    time_bound: Annotated[list[Annotated[str, Field(min_length=1, max_length=64)]], Field(max_length=100)] = []
    time_bound_ttl_ms: f.Millis = _SEMANTIC["time_bound_ttl_ms"]


class CachePolicyFields(f.Fields):
    """A cache that is null is not used."""

    exact: ExactCacheFields | None = None
    semantic: SemanticCacheFields | None = None


class CachePolicyNoun(Noun[rows.CachePolicy]):
    """Whether the embedding model exists, and whether a model still names a policy, is checked on the whole."""

    noun = "cache policy"
    row = rows.CachePolicy
    fields = CachePolicyFields
    section = "cache_policies"
    # Before the tenants, which name policies.
    order: ClassVar[int] = 5

    def describe(self, row: rows.CachePolicy) -> Document:
        return {"name": row.name, "exact": row.exact, "semantic": row.semantic}

    def wire_form(self, row: rows.CachePolicy) -> Document:
        semantic = row.semantic and {**row.semantic, "time_bound": as_set(row.semantic.get("time_bound", []))}
        return present({"exact": row.exact, "semantic": semantic})

    def from_wire(self, content: Document) -> Document:
        if semantic := content.get("semantic"):
            return {**content, "semantic": {**semantic, "time_bound": list(semantic.get("time_bound", {}))}}
        return content

    def users(self, row: rows.CachePolicy) -> list[str]:
        return [f"tenant {name!r}" for name in row.tenants.order_by("name").values_list("name", flat=True)]


CACHE_POLICIES = CachePolicyNoun()
