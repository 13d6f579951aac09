"""Findings for the tests of their pages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from controlplane.diagnosis.described import Prepared
from controlplane.diagnosis.models import Finding
from controlplane.diagnosis.services import findings, rounds
from controlplane.diagnosis.services.policies import LEVER_POLICIES
from controlplane.fleet.services import MODELS, POOLS
from controlplane.web.views.diagnosis import numbers_of as named
from tests.web.conftest import write

LEVER: dict[str, Any] = {
    "place": 0,
    "title": {"en": "Admit less", "tr": "Daha az kabul et"},
    "why": {"en": "Of those admitted 20 run and 12 wait."},
    "advice": {},
    "edits": [{"noun": "pools", "key": "kv", "changes": {"kv_admit_permille": 800}, "create": False}],
    "commands": [],
}


def found(*, levers: dict[str, Any] | None = None, error: str = "", **columns: Any) -> Finding:
    """A finding of pool kv; `error`: its detector has become blind since."""
    if POOLS.find("kv") is None:
        write(lambda unit: MODELS.create(unit, "small", {"max_context_tokens": 8192}))
        write(lambda unit: POOLS.create(unit, "kv", {"model": "small"}))
    told = {
        "confidence_permille": 900,
        "summary": {"en": "kv: the KV cache is 97 % full", "tr": "kv: KV önbelleği %97 dolu"},
        "evidence": [
            {"name": "kv_use", "value": 0.9712, "unit": "ratio", "limit": 0.95, "expr": "max by (pool) (kv)"},
            {"name": "kv_capacity", "value": 98304, "unit": "tokens", "limit": None, "expr": ""},
        ],
        "pools": ["kv"],
        "tenants": [],
        **columns,
    }
    at = timezone.now() - timedelta(hours=2)
    assert rounds.claim(at)
    seen = Prepared("pool/kv", told, {"kv_admit": LEVER} if levers is None else levers)
    assert findings.store([findings.Looked("kv_exhausted", 1, [seen], took_ms=3)], at, 5)
    if error:
        assert findings.store([findings.Looked("kv_exhausted", 1, error=error)], at + timedelta(seconds=15), 5)
    return Finding.objects.get(state="open")


def numbers_of(finding: Finding) -> str:
    """What the address of a lever's review carries."""
    return named(finding.proposals.get())


def policy(name: str) -> None:
    """Apply the finding's lever without asking."""
    write(lambda unit: LEVER_POLICIES.create(unit, name, {"detector": "kv_exhausted", "lever": "kv_admit"}))
