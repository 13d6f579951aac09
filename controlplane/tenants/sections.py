"""What tenants, their keys and priority classes put into the configuration."""

from __future__ import annotations

from controlplane.core.changes import Section
from controlplane.tenants.services import PRIORITY_CLASSES, TENANTS, keys

SECTIONS = (
    PRIORITY_CLASSES.as_section(),
    TENANTS.as_section(),
    # Not restored: a rollback must not revive a blocked or deleted key.
    Section(keys.SECTION, keys.compile_key, keys.all_hashes),
)
