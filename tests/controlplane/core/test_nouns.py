"""What holds for every noun alike."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.breakers.services import OVERRIDES
from controlplane.core import users
from controlplane.core.changes import SYSTEM, sections, unit_of_work
from controlplane.core.errors import Conflict
from controlplane.core.models import Role, User
from controlplane.core.nouns import Noun
from controlplane.fleet.services import ENGINES, MODELS, NODES, POOLS
from controlplane.routing.services import ROUTES
from controlplane.tenants.services import PRIORITY_CLASSES, TENANTS
from tests.controlplane.core.racing import meeting, race, two_writers

NEEDED: dict[Noun[Any], dict[str, Any]] = {
    MODELS: {},
    POOLS: {"model": "one"},
    NODES: {},
    ENGINES: {"pool": "one", "url": "http://10.0.0.1:8000", "served_model": "one"},
    PRIORITY_CLASSES: {},
    TENANTS: {},
    ROUTES: {"pools": {"one": 1000}},
    OVERRIDES: {"subject_kind": "pool", "subject": "one", "state": "open", "owner": "me", "reason": "a test"},
}


def largest_numbers(noun: Noun[Any]) -> dict[str, int]:
    """Each whole number that the noun takes, as large as it may be."""
    found = {}
    for name, schema in noun.fields.model_json_schema()["properties"].items():
        for form in schema.get("anyOf", [schema]):
            if "maximum" in form:
                found[name] = form["maximum"]
    return found


@pytest.mark.django_db
def test_every_number_that_is_accepted_can_be_stored_and_read_back():
    with unit_of_work(SYSTEM, "a test", dry_run=True) as unit:
        for noun, needed in NEEDED.items():
            numbers = largest_numbers(noun)
            noun.create(unit, "one", {**needed, **numbers})
            content = noun.compile("one")
            assert content is not None
            # What is as it is without being said is left out.
            usual = {name: field.default for name, field in noun.fields.model_fields.items()}
            assert {name: content.get(name, usual[name]) for name in numbers} == numbers, noun.noun


@pytest.mark.django_db
def test_each_noun_has_a_section_that_lists_and_compiles_its_rows():
    with unit_of_work(SYSTEM, "a test", dry_run=True) as unit:
        for noun, needed in NEEDED.items():
            noun.create(unit, "one", {**needed, **dict.fromkeys(largest_numbers(noun), 1)})
        for noun in NEEDED:
            section = sections[noun.section]
            assert section.keys() == ["one"]
            assert section.compile("one") == noun.compile("one")
            assert section.compile("two") is None


def test_sections_are_restored_after_those_that_they_name():
    order = {noun: sections[noun.section].order for noun in NEEDED}
    assert order[MODELS] < order[POOLS] < order[ROUTES]
    assert order[PRIORITY_CLASSES] < order[TENANTS] < order[ROUTES]


@two_writers
@pytest.mark.django_db(transaction=True)
def test_of_two_who_take_a_name_at_once_one_is_refused():
    ends = race(*[lambda unit: TENANTS.create(unit, "acme", {})] * 2)
    assert sorted(ends, key=str) == [Conflict, None]


@two_writers
@pytest.mark.django_db(transaction=True)
def test_of_two_admins_who_demote_each_other_one_stays():
    for name in ("ada", "bob"):
        User.objects.create(username=name, role=Role.ADMIN)
    ends = race(
        lambda unit: users.update(unit, "ada", {"role": "viewer"}),
        lambda unit: users.update(unit, "bob", {"role": "viewer"}),
    )
    assert sorted(ends, key=str) == [Conflict, None]
    assert User.objects.filter(role=Role.ADMIN).count() == 1


@two_writers
@pytest.mark.django_db(transaction=True)
def test_a_pool_is_not_left_without_its_model_by_two_writers():
    with unit_of_work(SYSTEM, "a model") as unit:
        MODELS.create(unit, "m", {"max_context_tokens": 8192})
    ends = race(
        lambda unit: MODELS.delete(unit, "m"),
        lambda unit: POOLS.create(unit, "p", {"model": "m"}),
    )
    assert ends.count(None) == 1
    assert (MODELS.find("m") is None) == (POOLS.find("p") is None)


@two_writers
@pytest.mark.django_db(transaction=True)
def test_writes_that_lock_rows_in_opposite_orders_do_not_wait_for_each_other_forever():
    with unit_of_work(SYSTEM, "a pool") as unit:
        MODELS.create(unit, "m", {"max_context_tokens": 8192})
        POOLS.create(unit, "p", {"model": "m"})
    meet = meeting()
    ends = race(
        lambda unit: (MODELS.lock("m"), meet(), POOLS.lock("p")),
        lambda unit: (POOLS.lock("p"), meet(), MODELS.lock("m")),
    )
    assert ends == [None, None]
