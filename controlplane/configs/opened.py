"""Engines' API keys, read for gateways alone."""

from __future__ import annotations

import logging

from controlplane.core.errors import Conflict
from controlplane.core.sealed import unseal

log = logging.getLogger(__name__)


def unsealed(sealed: str) -> str | None:
    """The key; None where it cannot be read, so that one lost key does not hold up the whole configuration."""
    try:
        return unseal(sealed)
    except Conflict as error:
        log.error("an engine's API key is left out of the gateways' configuration: %s", error.detail)
        return None
