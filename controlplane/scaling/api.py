"""REST of scale signals."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from ninja import Router

from controlplane.core.security import viewer
from controlplane.scaling import services
from wire.canonical import Document

router = Router(tags=["scaling"])


@router.get("/scale-signals", auth=viewer, response=dict[str, Any], summary="How many engines each pool should have")
def list_signals(request: HttpRequest) -> Document:
    """As last measured (HEADWORKS_SCALE_INTERVAL_SECONDS). A pool that was not measured lately is not there; what is
    not known is null."""
    return {"items": services.signals(timezone.now())}


@router.get("/scale-signals/{pool}", auth=viewer, response=dict[str, Any], summary="Read one pool's signals")
def read_signals(request: HttpRequest, pool: str) -> Document:
    return services.signals_of(pool, timezone.now())
