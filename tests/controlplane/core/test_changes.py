from __future__ import annotations

import pytest

from controlplane.core.changes import REASON_MAX_CHARACTERS, SYSTEM, UnitOfWork, unit_of_work
from controlplane.core.errors import Refused
from controlplane.core.models import AppendOnly, AuditEntry
from controlplane.tenants import services
from controlplane.tenants.models import Tenant

pytestmark = pytest.mark.django_db


def test_what_one_unit_changes_shares_a_change_id():
    with unit_of_work(SYSTEM, "  two at once ") as unit:
        services.create(unit, "a", {})
        services.create(unit, "b", {})
    entries = AuditEntry.objects.order_by("pk")
    assert [entry.key for entry in entries] == ["a", "b"]
    assert {(entry.change_id, entry.reason, entry.touches_config) for entry in entries} == {
        (unit.change_id, "two at once", True)
    }


def test_a_refusal_in_the_middle_keeps_nothing():
    def both(unit: UnitOfWork) -> None:
        services.create(unit, "a", {})
        services.create(unit, "b", {"weight": 0})

    with pytest.raises(Refused), unit_of_work(SYSTEM, "a test") as unit:
        both(unit)
    assert not Tenant.objects.exists()
    assert not AuditEntry.objects.exists()


def test_a_step_that_refuses_undoes_the_write():
    with pytest.raises(Refused, match="nobody"), unit_of_work(SYSTEM, "a test") as unit:
        services.create(unit, "a", {"models": ["nobody"]})
    assert not Tenant.objects.exists()


def test_a_dry_run_undoes_itself():
    with unit_of_work(SYSTEM, "a test", dry_run=True) as unit:
        services.create(unit, "a", {})
    assert unit.patch == {"tenants": {"a": {"weight": 1, "blocked": False}}}
    assert not Tenant.objects.exists()
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize("reason", ["", " ", "x" * (REASON_MAX_CHARACTERS + 1), "\x1b[31m"])
def test_a_unit_needs_a_readable_reason(reason):
    with pytest.raises(Refused) as refused, unit_of_work(SYSTEM, reason):
        pass
    assert [problem.path for problem in refused.value.problems] == ["/reason"]


def test_the_audit_can_only_grow():
    with unit_of_work(SYSTEM, "a test") as unit:
        services.create(unit, "a", {})
    entry = AuditEntry.objects.get()
    with pytest.raises(AppendOnly):
        entry.save()
    with pytest.raises(AppendOnly):
        entry.delete()
