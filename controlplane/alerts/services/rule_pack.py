"""The rules that Headworks brings: created once, followed from version to version while nobody changes them.

What a person changed stays as it is, and what a person deleted does not come again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from controlplane.alerts import models as rows
from controlplane.alerts.rule_file.fields import checked
from controlplane.alerts.rule_file.text import read_yaml
from controlplane.alerts.services.rule_files import Names, alerts_of, described, fields_of
from controlplane.alerts.services.rules import RULES
from controlplane.core.changes import UnitOfWork
from wire.canonical import Document, content_hash

PACK = "headworks"
FOLDER = Path(__file__).resolve().parents[1] / "pack"
_GROUPS = "groups"
# Its rules say what agents' events have said already: they are there for those who switch them on.
_TOLD_BY_EVENTS = "told_by_events.yml"


class PackRule(NamedTuple):
    name: str
    fields: Document


@dataclass
class Loaded:
    """What loading did: names of rules. `kept`: a person changed them; `deleted`: a person deleted them; `taken`: there
    is another rule of that name."""

    created: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)

    def document(self) -> Document:
        return dict(vars(self))


def pack_rules(folder: Path = FOLDER) -> Iterator[PackRule]:
    """The rules of the rule files in a folder, in their order. Raises Refused where one cannot be read."""
    names = Names(())
    for file in sorted(folder.glob("*.yml")):
        document = read_yaml(file.read_bytes())
        if _GROUPS not in document:
            continue
        for group in checked(document):
            for place, alert in enumerate(alerts_of(group)):
                fields = {**fields_of(alert), "group": group.name, "place": place}
                fields["enabled"] = file.name != _TOLD_BY_EVENTS
                yield PackRule(names.new(alert.alert), fields)


def load_pack(unit: UnitOfWork, folder: Path = FOLDER) -> Loaded:
    """Make the stored rules those of the pack, but for what people did to them."""
    loaded = Loaded()
    brought = set(rows.PackedRule.objects.filter(pack=PACK).values_list("name", flat=True))
    rules = list(pack_rules(folder))
    held = RULES.lock_many({rule.name for rule in rules} | brought)
    for rule in rules:
        _bring(unit, rule, held.get(rule.name), rule.name in brought, loaded)
    for name in sorted(brought - {rule.name for rule in rules}):
        _withdraw(unit, name, held.get(name), loaded)
    return loaded


def is_changed(row: rows.Rule) -> bool:
    """Whether a person changed a rule of the pack."""
    return _hash(row) != row.pack_hash


def _bring(unit: UnitOfWork, rule: PackRule, row: rows.Rule | None, is_brought: bool, loaded: Loaded) -> None:
    if row is None:
        if is_brought:
            loaded.deleted.append(rule.name)
            return
        row = RULES.create(unit, rule.name, rule.fields)
        rows.PackedRule.objects.create(pack=PACK, name=rule.name)
        loaded.created.append(rule.name)
    elif row.pack != PACK:
        loaded.taken.append(rule.name)
        return
    elif is_changed(row):
        loaded.kept.append(rule.name)
        return
    else:
        before = RULES.describe(row)
        if all(before[name] == value for name, value in rule.fields.items()):
            return
        row = RULES.update(unit, rule.name, rule.fields)
        loaded.changed.append(rule.name)
    rows.Rule.objects.filter(pk=row.pk).update(pack=PACK, pack_hash=_hash(row))


def _withdraw(unit: UnitOfWork, name: str, row: rows.Rule | None, loaded: Loaded) -> None:
    """A rule that the pack no longer has."""
    if row is not None and row.pack == PACK:
        if is_changed(row):
            loaded.kept.append(name)
            return
        RULES.delete(unit, name)
        loaded.removed.append(name)
    rows.PackedRule.objects.filter(pack=PACK, name=name).delete()


def _hash(row: rows.Rule) -> str:
    # As a rule file has it, so that fields of a later version change no hash.
    return content_hash({"enabled": row.enabled, "group": row.group, "rule": described(row)})
