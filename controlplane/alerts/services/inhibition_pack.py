"""The inhibitions that Headworks brings, treated as its rules are (rule_pack.py): created once, followed from version
to version while nobody changes them. What a person changed stays, and what a person deleted does not come again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from controlplane.alerts import models as rows
from controlplane.alerts.rule_file.text import read_yaml
from controlplane.alerts.services.inhibitions import INHIBITIONS, InhibitionFields
from controlplane.alerts.services.rule_pack import FOLDER, Loaded
from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from wire.canonical import Document, content_hash

FILE = FOLDER / "inhibitions.yml"
# Of what it has brought once; rules have a list of their own.
PACK = "headworks-inhibitions"


class _Named(InhibitionFields):
    name: f.Name


class _File(f.Fields):
    """Alertmanager's `inhibit_rules`, each with a name."""

    inhibit_rules: Annotated[list[_Named], Field(max_length=f.NAMES_MAX)]


def pack_inhibitions(file: Path = FILE) -> dict[str, Document]:
    """Fields by name. Raises Refused where the file cannot be read."""
    read = f.read(_File, read_yaml(file.read_bytes()))
    return {each.name: each.model_dump(exclude={"name"}) for each in read.inhibit_rules}


def load_inhibitions(unit: UnitOfWork, file: Path = FILE) -> Loaded:
    """Make the stored inhibitions those of the pack, but for what people did to them."""
    loaded = Loaded()
    brought = set(rows.PackedRule.objects.filter(pack=PACK).values_list("name", flat=True))
    wanted = pack_inhibitions(file)
    held = INHIBITIONS.lock_many(wanted.keys() | brought)
    for name, fields in wanted.items():
        _bring(unit, name, fields, held.get(name), name in brought, loaded)
    for name in sorted(brought - wanted.keys()):
        _withdraw(unit, name, held.get(name), loaded)
    return loaded


def _bring(
    unit: UnitOfWork, name: str, fields: Document, row: rows.Inhibition | None, is_brought: bool, loaded: Loaded
) -> None:
    if row is None and is_brought:
        loaded.deleted.append(name)
        return
    if row is None:
        row = INHIBITIONS.create(unit, name, fields)
        rows.PackedRule.objects.create(pack=PACK, name=name)
        loaded.created.append(name)
    elif row.pack != PACK:
        loaded.taken.append(name)
        return
    elif is_changed(row):
        loaded.kept.append(name)
        return
    elif INHIBITIONS.describe(row) != {"name": name, **fields}:
        row = INHIBITIONS.update(unit, name, fields)
        loaded.changed.append(name)
    rows.Inhibition.objects.filter(pk=row.pk).update(pack=PACK, pack_hash=_hash(row))


def is_changed(row: rows.Inhibition) -> bool:
    """Whether a person changed an inhibition of the pack."""
    return _hash(row) != row.pack_hash


def _withdraw(unit: UnitOfWork, name: str, row: rows.Inhibition | None, loaded: Loaded) -> None:
    """One that the pack no longer has."""
    if row is not None and row.pack == PACK:
        if is_changed(row):
            loaded.kept.append(name)
            return
        INHIBITIONS.delete(unit, name)
        loaded.removed.append(name)
    rows.PackedRule.objects.filter(pack=PACK, name=name).delete()


def _hash(row: rows.Inhibition) -> str:
    return content_hash(INHIBITIONS.describe(row))
