"""The only writer of tenants, their keys and limits, priority classes, session limits and cache policies.

The functions here are those of tenants and keys; each noun has its own in a file of its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.core.changes import UnitOfWork
from controlplane.tenants.models import TenantKey
from controlplane.tenants.services import keys, temporary_limits
from controlplane.tenants.services.cache_policies import CACHE_POLICIES
from controlplane.tenants.services.priority_classes import PRIORITY_CLASSES
from controlplane.tenants.services.session_limits import SESSION_LIMITS
from controlplane.tenants.services.tenants import TENANTS

__all__ = [
    "CACHE_POLICIES", "PRIORITY_CLASSES", "SESSION_LIMITS", "TENANTS", "create", "create_key", "delete", "delete_key",
    "describe", "describe_key", "get", "get_key", "give_temporary_limits", "page", "page_keys", "rotate_key",
    "take_back_temporary_limits", "update", "update_key",
]  # fmt: skip

get, page, describe = TENANTS.get, TENANTS.page, TENANTS.describe
create, update, delete = TENANTS.create, TENANTS.update, TENANTS.delete
get_key, page_keys, describe_key = keys.get, keys.page, keys.describe
update_key, delete_key, rotate_key = keys.update, keys.delete, keys.rotate
give_temporary_limits, take_back_temporary_limits = temporary_limits.give, temporary_limits.take_back


def create_key(unit: UnitOfWork, tenant: str, fields: Mapping[str, Any]) -> tuple[TenantKey, str]:
    """A new key of the tenant of this name, and its secret, which is shown once and nowhere stored."""
    return keys.create(unit, TENANTS.lock(tenant), fields)
