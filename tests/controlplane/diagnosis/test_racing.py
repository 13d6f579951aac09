"""Several workers, and people beside them: a round is held once, a lever applied once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.errors import Conflict
from controlplane.core.models import AuditEntry
from controlplane.diagnosis import round
from controlplane.diagnosis.models import Finding, Proposal
from controlplane.diagnosis.services import proposals
from controlplane.fleet.services import MODELS, POOLS
from tests.controlplane.core.racing import at_once
from tests.controlplane.diagnosis.conftest import Sure, finding


@pytest.fixture
def pool(transactional_db: None, metrics: Any) -> None:
    with unit_of_work(SYSTEM, "for a test") as unit:
        MODELS.create(unit, "llama", {"max_context_tokens": 8192})
        POOLS.create(unit, "chat", {"model": "llama"})


def test_of_workers_that_look_at_once_one_holds_the_round(pool: None, detector: Sure):
    detector.finds = [finding()]
    at = timezone.now()
    assert round.look([detector], lambda: at)
    held: list[bool] = []
    ends = at_once(*[lambda: held.append(round.look([detector], lambda: at + timedelta(seconds=15)))] * 3)
    assert ends == [None] * 3
    assert sorted(held) == [False, False, True]
    assert len(detector.saw) == 2
    assert Finding.objects.count() == Proposal.objects.count() == 1


def test_of_two_who_apply_at_once_one_is_told_that_it_is_applied(pool: None, detector: Sure):
    detector.finds = [finding()]
    assert round.look([detector])
    row = Proposal.objects.get()

    def apply() -> None:
        with unit_of_work(SYSTEM, "a race") as unit:
            proposals.apply(unit, row.finding_id, row.key)

    assert sorted(map(str, at_once(apply, apply))) == sorted(map(str, [None, Conflict]))
    assert AuditEntry.objects.filter(noun="pool", action="update").count() == 1
