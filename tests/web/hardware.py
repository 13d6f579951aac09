"""Rows of a fleet as its agents would have left them, and a fault in it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from controlplane.alerts.models import Incident, Receiver
from controlplane.alerts.services import alerts
from controlplane.alerts.services.receivers import RECEIVERS
from controlplane.core.changes import UnitOfWork
from controlplane.fleet.models import Engine, Gpu, Node
from controlplane.fleet.services import ENGINES, MODELS, NODES, POOLS
from tests.web.conftest import write

GPUS = 8
MODEL = "meta-llama/Llama-3.1-8B"


def node(name: str, *, engines: Sequence[str] = (), lost: Sequence[int] = (), **facts: Any) -> Node:
    """A node of eight GPUs that reported just now; those in `lost` are off the bus."""
    write(lambda unit: NODES.create(unit, name, {}))
    reported = {"gpu_source": "nvml", "agent_version": "0.1.0", "driver_version": "570.1"}
    Node.objects.filter(name=name).update(**{"reported_at": timezone.now(), **reported, **facts})
    row = Node.objects.get(name=name)
    Gpu.objects.bulk_create(
        Gpu(
            node=row,
            uuid=gpu_uuid(name, index),
            index=index,
            model="NVIDIA H100 80GB HBM3",
            memory_bytes=80 << 30,
            state="lost" if index in lost else "ok",
            reported_at=timezone.now(),
        )
        for index in range(GPUS)
    )
    for engine in engines:
        add_engine(engine, row)
    return row


def gpu_uuid(node_name: str, index: int) -> str:
    return f"GPU-{node_name}-{index}"


def add_engine(name: str, on: Node | None, **facts: Any) -> Engine:
    """An engine of the pool "chat" that its agent saw up."""

    def create(unit: UnitOfWork) -> None:
        if not MODELS.find(MODEL):
            MODELS.create(unit, MODEL, {"max_context_tokens": 131_072})
            POOLS.create(unit, "chat", {"model": MODEL})
        row = {"url": "http://10.2.0.7:8000", "pool": "chat", "served_model": MODEL}
        ENGINES.create(unit, name, {**row, "node": on and on.name, "kv_capacity_tokens": 420_000})

    write(create)
    Engine.objects.filter(name=name).update(**{"state": "up", "version": "0.11.0", **facts})
    return Engine.objects.get(name=name)


def receiver(name: str) -> Receiver:
    row: Receiver = write(lambda unit: RECEIVERS.create(unit, name, {"url": "https://oncall.example/hook"}))
    return row


def fault(on: str, title: str = "XID 79 on GPU 3", *, severity: str = "critical", ago_seconds: int = 0) -> Incident:
    """An incident of a node, as an event of its agent opens it."""
    at: datetime = timezone.now() - timedelta(seconds=ago_seconds)
    with transaction.atomic():
        alert, _new = alerts.open_alert(
            labels={"alertname": "GpuXid", "node": on, "gpu": title},
            source="event",
            severity=severity,
            title=f"{on}: {title}",
            annotations={"description": f"{title}: reboot the node"},
            at=at,
            text=title,
        )
    return alert.incident
