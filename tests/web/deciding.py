"""A site whose gateway tells decisions, and a worker that evaluates its recording rules."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

from tests.services import Process
from tests.web.site import Site, headworks
from wire import PROTOCOL

GATEWAY = "edge-1"
# Of a request that was refused for its size, and of one that was served.
TOO_LONG, SERVED = "b6a1d2e0-77aa-4f0e-9d07-0d8a2b8b8c11", "0d6fd3f4-4b7e-4f55-8a4c-3a8f6d1c2e90"
REQUEST = "/decisions/request/?id="
DECISION_PATHS = [
    "/decisions/",
    "/decisions/?tenant=search&reason=tpm_limit",
    "/decisions/?gateway=nothing",
    *(f"{REQUEST}{request_id}" for request_id in (TOO_LONG, SERVED, "nothing")),
]
RULE_PATHS = ["/recording-rules/", "/recording-rules/edit/", "/recording-rules/reset/"]


def tell_decisions(site: Site) -> None:
    """A gateway joins and tells of what it refused, and of one request that it admitted."""
    rest = site.rest
    rest.post("/priority-classes", {"name": "interactive", "rank": 10})
    rest.post("/models", {"name": "llama-3.1-8b", "max_context_tokens": 131_072})
    rest.post("/pools", {"name": "chat", "model": "llama-3.1-8b"})
    for tenant in ("search", "nightly-summaries"):
        rest.post("/tenants", {"name": tenant, "tpm_limit": 60_000})
    secret = rest.post("/targets/join-tokens", {"kind": "gateway", "name": GATEWAY})["secret"]
    body = {"join_token": secret, "kind": "gateway", "name": GATEWAY, "version": "0.1.0", "protocol": PROTOCOL}
    token = rest.post("/targets/enrol", body)["token"]
    request = urllib.request.Request(
        f"{site.url}/api/v1/decisions",
        json.dumps(list(_decisions())).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200


def _decisions() -> Iterator[dict[str, Any]]:
    now_ms = int(time.time() * 1000)
    common = {"revision": 1, "tenant": "search", "class": "interactive", "pool": "chat"}
    tokens = "3200 tokens are asked for and 410 of 60000 tokens a minute are left; it fits in 2.8 s"
    for number in range(6):
        numbers = {"asked": 3200, "left": 410, "limit": 60_000, "retry_after_ms": 2790 + number, "prompt_tokens": 2688}
        quota = {"stage": "take_quota", "reason": "tpm_limit", "status": 429, "message": tokens, "numbers": numbers}
        yield {**common, **quota, "request_id": f"search-{number}", "at": now_ms - 60_000 + number}
    key = {"stage": "identify", "reason": "unknown_key", "status": 401, "message": "this key is not known here"}
    yield {"revision": 1, **key, "request_id": "7d0c5b1a", "at": now_ms - 30_000}
    yield {
        **common,
        "tenant": "nightly-summaries",
        "request_id": TOO_LONG,
        "at": now_ms - 20_000,
        "stage": "measure",
        "reason": "context_too_long",
        "status": 400,
        "message": "the prompt has 140002 tokens and llama-3.1-8b takes 131072, the answer included; shorten it",
        "numbers": {"prompt_tokens": 140_002, "limit": 131_072},
    }
    served = {"prompt_tokens": 912, "max_tokens": 512, "output_tokens": 388, "queue_ms": 14, "first_byte_ms": 231}
    yield {
        **common, "request_id": SERVED, "at": now_ms - 10_000, "stage": "serve", "reason": "admitted", "status": 200,
        "numbers": served,
    }  # fmt: skip


@contextlib.contextmanager
def recording_worker(site: Site) -> Iterator[None]:
    """A worker that evaluates recording rules every few seconds."""
    quick = {"HEADWORKS_RECORDING_INTERVAL_SECONDS": "10", "HEADWORKS_RECORDING_DELAY_SECONDS": "0"}
    with Process(headworks("worker"), log=site.folder / "worker.log", environment={**site.environment, **quick}):
        yield


def are_evaluated(site: Site) -> bool:
    states = site.rest.get("/recording-rules/state")["items"]
    return bool(states) and all(state["evaluated_at"] for state in states)
