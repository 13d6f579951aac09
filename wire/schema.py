"""JSON Schema (2020-12) of what crosses between targets and the control plane, for clients in other languages."""

from __future__ import annotations

from typing import Any

import msgspec

from wire import PROTOCOL
from wire.batches import LeaseAnswer, LeaseRequest, Renewal, Results
from wire.messages import (
    Ack,
    Decision,
    EnrolAnswer,
    EnrolRequest,
    Event,
    NodeReport,
    PatchEvent,
    PeersEvent,
    SnapshotEvent,
)
from wire.sketches import Sketch
from wire.snapshot import GatewaySnapshot, NodeSnapshot

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TYPES: dict[str, Any] = {
    "gateway-snapshot": GatewaySnapshot,
    "node-snapshot": NodeSnapshot,
    "stream-snapshot": SnapshotEvent,
    "stream-patch": PatchEvent,
    "stream-peers": PeersEvent,
    "ack": Ack,
    "node-report": NodeReport,
    "events": list[Event],
    "decisions": list[Decision],
    "sketches": list[Sketch],
    "batch-lease-request": LeaseRequest,
    "batch-lease-answer": LeaseAnswer,
    "batch-renewal": Renewal,
    "batch-results": Results,
    "enrol-request": EnrolRequest,
    "enrol-answer": EnrolAnswer,
}


def schemas() -> dict[str, dict[str, Any]]:
    """Name → schema, each complete in itself. `events`, `decisions` and `sketches` are the posted lists."""
    return {
        name: {"$schema": DIALECT, "$id": f"urn:headworks:protocol-{PROTOCOL}:{name}", **msgspec.json.schema(kind)}
        for name, kind in _TYPES.items()
    }
