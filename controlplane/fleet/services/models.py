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
    """`tokenizer` and `chat_template` are SHA-256 of uploaded files; without a tokenizer gateways estimate lengths.

    Prices are of a token, in millionths of whatever money the fleet is accounted in.
    """

    max_context_tokens: f.Positive
    default_max_tokens: f.Positive = f.default_of(rows.Model, "default_max_tokens")
    max_tokens: f.Positive = f.default_of(rows.Model, "max_tokens")
    kv_bytes_per_token: f.Count = f.default_of(rows.Model, "kv_bytes_per_token")
    tokenizer: f.Sha256 | None = None
    chat_template: f.Sha256 | None = None
    prompt_token_cost_micros: f.Count = f.default_of(rows.Model, "prompt_token_cost_micros")
    output_token_cost_micros: f.Count = f.default_of(rows.Model, "output_token_cost_micros")
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
        return rows.Model.objects.select_related(*_FILES).only(*_COLUMNS, *(f"{file}__sha256" for file in _FILES))

    def describe(self, row: rows.Model) -> Document:
        return {
            "name": row.name,
            "max_context_tokens": row.max_context_tokens,
            "default_max_tokens": row.default_max_tokens,
            "max_tokens": row.max_tokens,
            "kv_bytes_per_token": row.kv_bytes_per_token,
            "tokenizer": row.tokenizer.sha256 if row.tokenizer else None,
            "chat_template": row.chat_template.sha256 if row.chat_template else None,
            "prompt_token_cost_micros": row.prompt_token_cost_micros,
            "output_token_cost_micros": row.output_token_cost_micros,
            "cache_policy": row.cache_policy or None,
        }

    def assign(self, row: rows.Model, values: Document) -> list[Problem]:
        problems: list[Problem] = []
        files: Document = dict.fromkeys(_FILES)
        for kind in _FILES:
            if sha256 := values[kind]:
                files[kind] = artifacts.find_locked(sha256, kind)
                if files[kind] is None:
                    message = f"there is no {kind.replace('_', ' ')} {sha256}; upload it as an artifact of that kind"
                    problems.append(Problem(f"/{kind}", "reference", message))
        if values["default_max_tokens"] > values["max_tokens"]:
            message = f"must be at most max_tokens ({values['max_tokens']})"
            problems.append(Problem("/default_max_tokens", "range", message))
        super().assign(row, {**values, **files, "cache_policy": values["cache_policy"] or ""})
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


# Kinds of artifacts that a model names, each in a field of that name.
_FILES = ("tokenizer", "chat_template")
_COLUMNS = tuple(field.name for field in rows.Model._meta.concrete_fields)
MODELS = ModelNoun()
