from __future__ import annotations

from typing import Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest

from tests.wire.examples import gateway_content, node_content
from wire.batches import HeldLine, LeaseAnswer, LeasedLine, LeaseRequest, LineResult, Renewal, Results, Want
from wire.canonical import content_hash
from wire.messages import (
    Ack,
    Decision,
    EngineReport,
    EnrolAnswer,
    EnrolRequest,
    Event,
    GpuReport,
    NodeReport,
    PatchEvent,
    PeersEvent,
    SnapshotEvent,
)
from wire.problems import Problem, type_problems
from wire.schema import schemas
from wire.sketches import Sketch
from wire.snapshot import NodeSnapshot

HASH = content_hash(gateway_content())
EXAMPLES: dict[str, list[Any]] = {
    "gateway-snapshot": [gateway_content(), {"kind": "gateway", "schema": 1}],
    "node-snapshot": [node_content(e1="http://e1:8000")],
    "stream-snapshot": [SnapshotEvent(1, HASH, gateway_content())],
    "stream-patch": [PatchEvent(1, 2, HASH, {"tenants": {"acme": None}})],
    "stream-peers": [PeersEvent(3)],
    "ack": [Ack(1, hash=HASH, applied_at=1_800_000_000_000), Ack(1, error=[Problem("/", "type", "no")])],
    "node-report": [
        NodeReport("0.1.0"),
        NodeReport(
            "0.1.0",
            gpus=[GpuReport("GPU-1", 0, "NVIDIA H200", memory_bytes=150_754_820_096)],
            engines=[EngineReport("e1", "up", version="0.32.0", kv_capacity_tokens=1_048_576)],
            gpu_source="nvml",
            cordon_applied=True,
        ),
    ],
    "events": [[Event("boot-1-17", 1, "xid", "GPU-1", "critical", "XID 79: fell off the bus", "node-1")]],
    "decisions": [[Decision("req-1", 1, 2, "quota", "tenant_tpm", 429, tenant="acme", numbers={"used_tokens": 5})]],
    "sketches": [[Sketch(60_000, "acme", "batch", "chat", 2, [(33, 1), (447, 1)], [(5, 2)], [(0, 1)]), Sketch(0)]],
    "batch-lease-request": [LeaseRequest([Want(["team/m", "alias"], 8)], ["team/m", "alias"], 4, ["acme"])],
    "batch-lease-answer": [
        LeaseAnswer([LeasedLine(7, 1, "batch_1", "acme", "/v1/embeddings", "m", 1, 9, msgspec.Raw(b"{}"))], 60_000)
    ],
    "batch-renewal": [Renewal([HeldLine(7, 1)])],
    "batch-results": [Results([LineResult(7, 1, "done", 200, "r", msgspec.Raw(b"{}")), LineResult(8, 1, "again")])],
    "enrol-request": [EnrolRequest("j" * 43, "node", "node-1", "0.1.0", 1)],
    "enrol-answer": [EnrolAnswer(1, "t" * 43, 1_800_000_000_000)],
}
BROKEN: dict[str, Any] = {
    "gateway-snapshot": {**gateway_content(), "tenants": {"acme": {"tpm_limit": -1}}},
    "node-snapshot": {"kind": "node", "schema": 1},
    "stream-snapshot": {"revision": 1, "hash": "short", "content": {}},
    "stream-patch": {"revision": 1, "hash": HASH, "patch": {}},
    "stream-peers": {"live_gateways": 0},
    "ack": {"revision": 1, "error": []},
    "node-report": {"version": "0.1.0", "engines": [{"name": "e1", "state": "asleep"}]},
    "events": [{"id": "short"}],
    "decisions": [{"request_id": "req-1", "at": 1, "revision": 2, "stage": "quota", "reason": "r", "status": 42}],
    "sketches": [{"minute": 60_001}],
    "batch-lease-request": {"wants": [{"models": [], "lines": 8}], "known": []},
    "batch-lease-answer": {"lines": [{"id": 7}], "lease_ms": 60_000},
    "batch-renewal": {"lines": [{"id": 0, "lease": 1}]},
    "batch-results": {"results": []},
    "enrol-request": {"join_token": "short", "kind": "node", "name": "node-1", "version": "0.1.0", "protocol": 1},
    "enrol-answer": {"target_id": 1, "token": "t" * 43},
}
SCHEMAS = schemas()


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_accepts_real_messages(name):
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])
    validator = jsonschema.Draft202012Validator(SCHEMAS[name])
    for example in EXAMPLES[name]:
        validator.validate(msgspec.json.decode(msgspec.json.encode(example)))


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_refuses_a_broken_message(name):
    assert list(jsonschema.Draft202012Validator(SCHEMAS[name]).iter_errors(BROKEN[name]))


def test_a_name_with_a_line_end_is_refused_by_schema_and_reader_alike():
    content = node_content("node-1\n")
    assert type_problems(content, NodeSnapshot)
    assert list(jsonschema.Draft202012Validator(SCHEMAS["node-snapshot"]).iter_errors(content))
