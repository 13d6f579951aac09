"""A batch as a page may find it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from controlplane.batches.models import Batch, Status


def batch_of(tenant: str, **fields: Any) -> Batch:
    """One that runs, half done."""
    now = timezone.now()
    own = {
        "id": f"batch_of_{tenant}_{Batch.objects.count()}",
        "tenant": tenant,
        "endpoint": "/v1/chat/completions",
        "input_file_id": "file-1",
        "completion_window": "24h",
        "status": Status.IN_PROGRESS,
        "created_at": now,
        "expires_at": now + timedelta(days=1),
        "stops_at": now + timedelta(days=1),
        "total": 1200,
        "completed": 590,
        "failed": 10,
    }
    return Batch.objects.create(**{**own, **fields})
