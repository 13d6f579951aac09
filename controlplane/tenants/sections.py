"""What tenants, their keys, and what tenants name put into the configuration."""

from __future__ import annotations

from controlplane.core.changes import Section
from controlplane.tenants.services import CACHE_POLICIES, PRIORITY_CLASSES, SESSION_LIMITS, TENANTS, keys
from controlplane.tenants.services.tenants import STATE_FIELDS

SECTIONS = (
    CACHE_POLICIES.as_section(),
    SESSION_LIMITS.as_section(),
    PRIORITY_CLASSES.as_section(),
    TENANTS.as_section(state=STATE_FIELDS),
    # Not restored: a rollback must not revive a blocked or deleted key.
    Section(keys.SECTION, keys.compile_key, keys.all_hashes),
)
