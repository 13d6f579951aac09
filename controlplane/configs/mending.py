"""Writes while the newest revision is damaged and no other could be published in its place yet."""

from __future__ import annotations

from controlplane.configs.hub import heads
from controlplane.core.changes import UnitOfWork


def refuse_unpublishable(unit: UnitOfWork) -> None:
    """Raises Damaged for a write that no target would hear of. Revoking, enrolling and the like go on."""
    if unit.patch and heads.damaged is not None:
        # Looked at anew, as it may have been mended since.
        heads.refresh()
