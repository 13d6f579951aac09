"""Aliases: other names that clients may call a model by."""

from __future__ import annotations

from typing import ClassVar

from controlplane.core import fields as f
from controlplane.core.nouns import Noun
from controlplane.fleet import models as rows
from controlplane.fleet.services.models import MODELS
from wire.canonical import Document
from wire.problems import Problem


class AliasFields(f.Fields):
    """`model`: what the name stands for; rules, permissions and limits are about that model.

    No alias has the name of a model. That is checked on the whole configuration, so that one write may turn the one
    into the other.
    """

    model: f.ModelName


class AliasNoun(Noun[rows.Alias]):
    noun = "alias"
    row = rows.Alias
    fields = AliasFields
    section = "aliases"
    order: ClassVar[int] = 15
    name_like = f.LIKE_MODEL_NAME
    related = ("model",)

    def describe(self, row: rows.Alias) -> Document:
        return {"name": row.name, "model": row.model.name}

    def assign(self, row: rows.Alias, values: Document) -> list[Problem]:
        problems: list[Problem] = []
        if model := MODELS.referenced("/model", values["model"], problems):
            row.model = model
        return problems

    def wire_form(self, row: rows.Alias) -> Document:
        return {"model": row.model.name}


ALIASES = AliasNoun()
