"""Repairs as the worker would have left them."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from controlplane.remediation.models import Remediation, State


def repair_of(node: str, state: State = State.OBSERVED, **fields: Any) -> Remediation:
    now = timezone.now()
    known = {"gpu": "GPU-3", "cause": "xid 95", "action": "reset_gpu", "said": "would reset_gpu"}
    times = dict.fromkeys(("begun_at", "state_at", "look_at"), now)
    return Remediation.objects.create(node=node, state=state, **{**known, **times, **fields})
