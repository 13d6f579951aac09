"""Decisions as gateways tell them."""

from __future__ import annotations

import time
from typing import Any

from controlplane.telemetry.decisions import log
from wire.messages import Decision


def refusal(request_id: str, *, gateway: str = "edge-1", **changes: Any) -> None:
    """A gateway has just told of a request that was refused for want of tokens, unless `changes` say otherwise."""
    now_ms = time.time_ns() // 1_000_000
    told: dict[str, Any] = {
        "request_id": request_id,
        "at": now_ms,
        "revision": 1,
        "stage": "take_quota",
        "reason": "tpm_limit",
        "status": 429,
        "tenant": "acme",
        "message": "500 tokens are asked for and 20 of 60000 tokens a minute are left; it fits in 0.5 s",
        "numbers": {"limit": 60_000, "left": 20, "asked": 500, "retry_after_ms": 480},
        **changes,
    }
    log.take(gateway, [Decision(**told)], now_ms)
