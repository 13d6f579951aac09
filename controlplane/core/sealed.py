"""Secrets that must be read again, such as engines' API keys: encrypted at rest with HEADWORKS_FIELD_KEY (Fernet)."""

from __future__ import annotations

import base64
import logging
from datetime import UTC, datetime

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings

from controlplane.core.errors import Conflict

log = logging.getLogger(__name__)


def seal(secret: str) -> str:
    """Encrypt. The same secret gives another text each time."""
    return _fernet().encrypt(secret.encode()).decode()


def unseal(sealed: str) -> str:
    """Decrypt. Raises Conflict where the key is another than the one it was encrypted with."""
    try:
        return _fernet().decrypt(sealed).decode()
    except InvalidToken as error:
        raise Conflict(
            "a stored secret was encrypted with another HEADWORKS_FIELD_KEY; restore that key, or set the secret again",
            code="field_key",
        ) from error


def unsealed(sealed: str) -> str | None:
    """As `unseal`, but None, and a line in the log, where it cannot be read: one lost key must not stop all readers."""
    try:
        return unseal(sealed)
    except Conflict as error:
        log.error("a secret is left out: %s", error.detail)
        return None


def sealed_at(sealed: str) -> datetime:
    """When it was encrypted (a Fernet token says so in clear, to the second), whatever the key."""
    # Version byte, then the time as 64 bits, big-endian: https://github.com/fernet/spec/blob/master/Spec.md
    return datetime.fromtimestamp(int.from_bytes(base64.urlsafe_b64decode(sealed)[1:9], "big"), UTC)


def _fernet() -> Fernet:
    return Fernet(settings.HEADWORKS_FIELD_KEY)
