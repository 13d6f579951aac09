"""Rules that a version brings: created once, followed while nobody changes them, never against a person."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controlplane import cli
from controlplane.alerts.models import PackedRule, Rule
from controlplane.alerts.services.rule_pack import PACK, load_pack, pack_rules
from controlplane.alerts.services.rules import RULES
from controlplane.core.changes import SYSTEM, UnitOfWork, unit_of_work
from controlplane.core.models import AuditEntry
from controlplane.core.yaml_text import write_yaml

pytestmark = pytest.mark.django_db
FIRST = {"alert": "Full", "expr": "kv > 0.9", "for": "1m", "labels": {"severity": "warning"}}
SECOND = {"alert": "Full", "expr": "kv > 0.99", "labels": {"severity": "critical"}}
THIRD = {"alert": "Lost", "expr": "up == 0", "annotations": {"summary": "{{ $labels.node }} is lost"}}


class Pack:
    """A folder of one rule file, loaded as often as a version changes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "inhibitions.yml").write_text("inhibit_rules: []\n")

    def load(self, *rules: dict[str, Any], dry_run: bool = False) -> dict[str, list[str]]:
        """What loading these rules did, without what it did not."""
        text = write_yaml({"groups": [{"name": "engines", "rules": list(rules)}]})
        (self.folder / "engines.yml").write_text(text)
        with unit_of_work(SYSTEM, "a version", dry_run=dry_run) as unit:
            done = load_pack(unit, self.folder).document()
        return {what: names for what, names in done.items() if names}


@pytest.fixture
def pack(tmp_path):
    return Pack(tmp_path)


def by_a_person(action: Any) -> None:
    with unit_of_work(SYSTEM, "a person") as unit:
        action(unit)


def test_it_is_created_once(pack):
    assert pack.load(FIRST, SECOND, THIRD) == {"created": ["Full", "Full-2", "Lost"]}
    assert pack.load(FIRST, SECOND, THIRD) == {}
    assert set(Rule.objects.values_list("pack", "group")) == {(PACK, "engines")}
    assert Rule.objects.get(name="Full-2").severity == "critical"
    assert AuditEntry.objects.filter(noun="rule").count() == 3


def test_a_rule_that_nobody_changed_follows_the_pack(pack):
    pack.load(FIRST, THIRD)
    assert pack.load({**FIRST, "expr": "kv > 0.8"}, THIRD) == {"changed": ["Full"]}
    assert Rule.objects.get(name="Full").expr == "kv > 0.8"
    assert pack.load({**FIRST, "expr": "kv > 0.7"}, THIRD) == {"changed": ["Full"]}


@pytest.mark.parametrize(
    "change", [{"expr": "kv > 0.5"}, {"enabled": False}, {"labels": {"team": "a"}}, {"group": "b"}]
)
def test_a_rule_that_a_person_changed_stays_as_it_is(pack, change):
    pack.load(FIRST)
    by_a_person(lambda unit: RULES.update(unit, "Full", change))
    before = RULES.describe(Rule.objects.get())
    assert pack.load({**FIRST, "for": "5m"}) == {"kept": ["Full"]}
    assert RULES.describe(Rule.objects.get()) == before


def test_a_rule_that_a_person_changed_back_follows_the_pack_again(pack):
    pack.load(FIRST)
    by_a_person(lambda unit: RULES.update(unit, "Full", {"enabled": False}))
    by_a_person(lambda unit: RULES.update(unit, "Full", {"enabled": True}))
    assert pack.load({**FIRST, "for": "5m"}) == {"changed": ["Full"]}


def test_a_rule_that_a_person_deleted_does_not_come_again(pack):
    pack.load(FIRST, THIRD)
    by_a_person(lambda unit: RULES.delete(unit, "Full"))
    assert pack.load({**FIRST, "for": "5m"}, THIRD) == {"deleted": ["Full"]}
    assert list(Rule.objects.values_list("name", flat=True)) == ["Lost"]


def test_a_person_s_own_rule_of_that_name_is_left_alone(pack):
    by_a_person(lambda unit: RULES.create(unit, "Full", {"expr": "vector(1)"}))
    assert pack.load(FIRST, THIRD) == {"created": ["Lost"], "taken": ["Full"]}
    assert Rule.objects.get(name="Full").expr == "vector(1)"
    by_a_person(lambda unit: RULES.delete(unit, "Full"))
    assert pack.load(FIRST, THIRD) == {"created": ["Full"]}


def test_what_the_pack_no_longer_has_goes_unless_a_person_changed_it(pack):
    pack.load(FIRST, SECOND, THIRD)
    by_a_person(lambda unit: RULES.update(unit, "Lost", {"enabled": False}))
    assert pack.load(FIRST) == {"removed": ["Full-2"], "kept": ["Lost"]}
    assert set(Rule.objects.values_list("name", flat=True)) == {"Full", "Lost"}
    # It comes again in a later version: a person did not delete it.
    assert pack.load(FIRST, SECOND) == {"created": ["Full-2"], "kept": ["Lost"]}


def test_a_dry_run_keeps_nothing(pack):
    assert pack.load(FIRST, dry_run=True) == {"created": ["Full"]}
    assert not Rule.objects.exists()
    assert not PackedRule.objects.exists()


def test_the_pack_of_this_version_is_taken_whole():
    def load(unit: UnitOfWork) -> None:
        done = load_pack(unit)
        assert done.created == [rule.name for rule in pack_rules()]

    by_a_person(load)
    assert Rule.objects.count() == len(list(pack_rules())) > 20
    assert not Rule.objects.filter(annotations__summary=None).exists()


def test_it_comes_with_the_migration_unless_it_is_switched_off(settings, tmp_path, monkeypatch):
    settings.DATA_DIR, settings.STATIC_ROOT = tmp_path, tmp_path / "static"
    # Without what takes seconds.
    monkeypatch.setattr("django.core.management.call_command", lambda *words, **options: None)
    monkeypatch.setenv("HEADWORKS_RULE_PACK", "off")
    cli.prepare()
    assert not Rule.objects.exists()
    monkeypatch.delenv("HEADWORKS_RULE_PACK")
    cli.prepare()
    assert Rule.objects.filter(pack=PACK).count() == len(list(pack_rules()))
    changed = AuditEntry.objects.filter(noun="rule").count()
    cli.prepare()
    assert AuditEntry.objects.filter(noun="rule").count() == changed
