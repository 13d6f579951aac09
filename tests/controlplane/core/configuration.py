"""What rows put into the configuration."""

from __future__ import annotations

from controlplane.core.changes import sections
from wire.canonical import Document


def compiled(section: str, key: str) -> Document:
    """The entry as it stands; there must be one."""
    content = sections[section].compile(key)
    assert content is not None, f"{section} has no {key!r}"
    return content
