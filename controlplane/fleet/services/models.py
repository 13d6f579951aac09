"""Models: what clients ask for by name."""

from __future__ import annotations

from typing import ClassVar

from django.db.models import QuerySet

from controlplane.core import fields as f
from controlplane.core.nouns import Noun, present
from controlplane.fleet import models as rows
from controlplane.fleet.services import artifacts
from wire.canonical import Document
from wire.problems import Problem


class ModelFields(f.Fields):
    """`tokenizer` is the SHA-256 of an uploaded tokenizer; without one gateways estimate prompt lengths."""

    max_context_tokens: f.Positive
    default_max_tokens: f.Positive = f.default_of(rows.Model, "default_max_tokens")
    max_tokens: f.Positive = f.default_of(rows.Model, "max_tokens")
    kv_bytes_per_token: f.Count = f.default_of(rows.Model, "kv_bytes_per_token")
    tokenizer: f.Sha256 | None = None
    cache_policy: f.Name | None = None


class ModelNoun(Noun[rows.Model]):
    noun = "model"
    row = rows.Model
    fields = ModelFields
    section = "models"
    order: ClassVar[int] = 10
    name_like = f.LIKE_MODEL_NAME

    def queryset(self) -> QuerySet[rows.Model]:
        # Only the hash: an artifact's content is megabytes.
        return rows.Model.objects.select_related("tokenizer").only(*_COLUMNS, "tokenizer__sha256")

    def describe(self, row: rows.Model) -> Document:
        return {
            "name": row.name,
            "max_context_tokens": row.max_context_tokens,
            "default_max_tokens": row.default_max_tokens,
            "max_tokens": row.max_tokens,
            "kv_bytes_per_token": row.kv_bytes_per_token,
            "tokenizer": row.tokenizer.sha256 if row.tokenizer else None,
            "cache_policy": row.cache_policy or None,
        }

    def assign(self, row: rows.Model, values: Document) -> list[Problem]:
        problems: list[Problem] = []
        tokenizer = None
        if sha256 := values["tokenizer"]:
            tokenizer = artifacts.find_locked(sha256)
            if tokenizer is None:
                problems.append(Problem("/tokenizer", "reference", f"artifact {sha256} is not there; upload it"))
        if values["default_max_tokens"] > values["max_tokens"]:
            message = f"must be at most max_tokens ({values['max_tokens']})"
            problems.append(Problem("/default_max_tokens", "range", message))
        super().assign(row, {**values, "tokenizer": tokenizer, "cache_policy": values["cache_policy"] or ""})
        return problems

    def wire_form(self, row: rows.Model) -> Document:
        described = self.describe(row)
        del described["name"]
        return present(described)

    def users(self, row: rows.Model) -> list[str]:
        named = (("pool", row.pools), ("alias", row.aliases))
        return [
            f"{noun} {name!r}"
            for noun, users in named
            for name in users.order_by("name").values_list("name", flat=True)
        ]


_COLUMNS = tuple(field.name for field in rows.Model._meta.concrete_fields)
MODELS = ModelNoun()
