"""The only writer of tenants, their keys and priority classes.

The functions here are those of tenants; `keys` and `priority_classes` have theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.core.changes import UnitOfWork
from controlplane.tenants.models import TenantKey
from controlplane.tenants.services import keys
from controlplane.tenants.services.priority_classes import PRIORITY_CLASSES
from controlplane.tenants.services.tenants import TENANTS

__all__ = [
    "PRIORITY_CLASSES", "TENANTS", "create", "create_key", "delete", "delete_key", "describe", "describe_key", "get",
    "get_key", "page", "page_keys", "update", "update_key",
]  # fmt: skip

get, page, describe = TENANTS.get, TENANTS.page, TENANTS.describe
create, update, delete = TENANTS.create, TENANTS.update, TENANTS.delete
get_key, page_keys, describe_key = keys.get, keys.page, keys.describe
update_key, delete_key = keys.update, keys.delete


def create_key(unit: UnitOfWork, tenant: str, fields: Mapping[str, Any]) -> tuple[TenantKey, str]:
    """A new key of the tenant of this name, and its secret, which is shown once and nowhere stored."""
    return keys.create(unit, TENANTS.lock(tenant), fields)
