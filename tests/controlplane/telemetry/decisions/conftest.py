"""A tenant, a class and a pool that exist, and a gateway that tells of requests."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from tests.controlplane.alerts.conftest import target
from tests.controlplane.conftest import Rest

_numbers = itertools.count()


def decision(**changes: Any) -> dict[str, Any]:
    """A refusal for want of tokens, of now."""
    return {
        "request_id": f"request-{next(_numbers):08}",
        "at": time.time_ns() // 1_000_000,
        "revision": 7,
        "stage": "take_quota",
        "reason": "tpm_limit",
        "status": 429,
        "tenant": "acme",
        "class": "batch",
        "pool": "chat",
        "message": "500 tokens are asked for and 20 of 60000 tokens a minute are left; it fits in 0.5 s",
        "numbers": {"asked": 500, "left": 20, "limit": 60_000},
        "stages": [
            {"stage": "identify", "took_us": 12, "numbers": {}},
            {"stage": "take_quota", "took_us": 48, "numbers": {"asked": 500}},
        ],
        **changes,
    }


@pytest.fixture
def names(admin: Rest) -> None:
    for path, body in (
        ("/tenants", {"name": "acme"}),
        ("/priority-classes", {"name": "batch", "rank": 5}),
        ("/models", {"name": "org/m-1", "max_context_tokens": 8192}),
        ("/pools", {"name": "chat", "model": "org/m-1"}),
    ):
        answer = admin.post(path, body)
        assert answer.status_code == 201, answer.content


@pytest.fixture
def gateway(names: None) -> Rest:
    return target("gateway", "gw-1")
