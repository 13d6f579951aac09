"""Models: what clients ask for by name."""

from __future__ import annotations

from typing import Annotated, ClassVar

from django.db.models import QuerySet
from msgspec import Meta
from pydantic import Field

from controlplane.core import fields as f
from controlplane.core.nouns import Noun, present
from controlplane.fleet import models as rows
from controlplane.fleet.services import artifacts
from wire import snapshot
from wire.canonical import Document
from wire.problems import Problem

FolderPath = Annotated[str, f.Like(snapshot.FolderPath, "give an absolute path on the nodes: /srv/models/llama")]
Phase = Annotated[
    str,
    f.Like(Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,63}$(?!\n)")], "give a phase as agents name it, or total"),
]
ColdStartBudget = Annotated[dict[Phase, Annotated[f.Millis, Field(ge=1)]], Field(max_length=32)]


class ModelFields(f.Fields):
    """`tokenizer` and `chat_template` are SHA-256 of uploaded files; without a tokenizer gateways estimate lengths.

    Prices are of a token, in millionths of whatever money the fleet is accounted in. `adapter`: it is this LoRA adapter
    of the engines in pools that list it; null: a model of its own. `cold_start_budget_ms`: phase of a start → the most
    that it may take; `total` is the whole start. `manifest`: SHA-256 of one that was uploaded; it says which files the
    model has, and `files_folder` where they lie on each node that serves it.
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
    adapter: f.Name | None = None
    cold_start_budget_ms: ColdStartBudget = {}
    manifest: f.Sha256 | None = None
    files_folder: FolderPath | None = None


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
            "adapter": row.adapter or None,
            "cold_start_budget_ms": row.cold_start_budget_ms,
            "manifest": row.manifest.sha256 if row.manifest else None,
            "files_folder": row.files_folder or None,
        }

    def assign(self, row: rows.Model, values: Document) -> list[Problem]:
        problems: list[Problem] = []
        files: Document = dict.fromkeys(_FILES)
        for field, kind in _FILES.items():
            if sha256 := values[field]:
                files[field] = artifacts.find_locked(sha256, kind)
                if files[field] is None:
                    message = f"there is no {kind.replace('_', ' ')} {sha256}; upload it as an artifact of that kind"
                    problems.append(Problem(f"/{field}", "reference", message))
        if values["default_max_tokens"] > values["max_tokens"]:
            message = f"must be at most max_tokens ({values['max_tokens']})"
            problems.append(Problem("/default_max_tokens", "range", message))
        texts = {name: values[name] or "" for name in ("cache_policy", "adapter", "files_folder")}
        super().assign(row, {**values, **files, **texts})
        return problems

    def wire_form(self, row: rows.Model) -> Document:
        described = self.describe(row)
        del described["name"]
        if not described["cold_start_budget_ms"]:
            del described["cold_start_budget_ms"]
        return present(described)

    def users(self, row: rows.Model) -> list[str]:
        named = (("pool", row.pools), ("alias", row.aliases))
        return [
            f"{noun} {name!r}"
            for noun, users in named
            for name in users.order_by("name").values_list("name", flat=True)
        ]


# Fields that name an artifact, and of which kind.
_FILES = {"tokenizer": "tokenizer", "chat_template": "chat_template", "manifest": "model_manifest"}
_COLUMNS = tuple(field.name for field in rows.Model._meta.concrete_fields)
MODELS = ModelNoun()
