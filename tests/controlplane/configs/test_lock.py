"""How long a write keeps others out is measured, on the page that tells of this process."""

from __future__ import annotations

import pytest

from controlplane.configs.metrics import REGISTRY
from tests.controlplane.conftest import Rest


def held() -> tuple[float, float]:
    """How often, and for how many seconds."""
    count, seconds = (REGISTRY.get_sample_value(f"headworks_write_seconds_{part}") for part in ("count", "sum"))
    assert count is not None
    assert seconds is not None
    return count, seconds


@pytest.mark.django_db(transaction=True)
def test_only_what_is_kept_counts(admin: Rest) -> None:
    count, seconds = held()
    assert admin.post("/tenants", {"name": "acme"}).status_code == 201
    assert held()[0] == count + 1
    assert held()[1] > seconds
    assert admin.post("/tenants?dry_run=true", {"name": "other"}).status_code == 201
    assert admin.post("/tenants", {"name": "acme"}).status_code == 409
    assert held()[0] == count + 1
