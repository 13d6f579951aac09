"""Fields that several kinds have."""

from __future__ import annotations

from pydantic_core import PydanticCustomError

from controlplane import settings_rows
from controlplane.alerts.addresses import url_refusal


def reachable(url: str) -> str:
    """A validator: a URL that may be set. Its name's addresses are judged when they are connected to."""
    if refusal := url_refusal(url, settings_rows.WEBHOOK_ALLOWED_NETWORKS.read()):
        raise PydanticCustomError("url", "{message}", {"message": refusal})
    return url
