"""Secrets that are shown once and stored as SHA-256 (INTERFACES, "Tokens")."""

from __future__ import annotations

import hashlib
import secrets

_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BASE62_DIGITS_FOR_32_BYTES = 43


def new_token(prefix: str) -> str:
    """`prefix-` and 32 random bytes in base62 (43 digits). The prefix tells a reader or a leak scanner what it is."""
    number = int.from_bytes(secrets.token_bytes(32), "big")
    digits = ""
    for _ in range(_BASE62_DIGITS_FOR_32_BYTES):
        number, digit = divmod(number, 62)
        digits += _BASE62[digit]
    return f"{prefix}-{digits}"


def token_hash(token: str) -> str:
    """SHA-256 as 64 hex digits. No salt: 256 random bits cannot be guessed, and a look-up must find the row."""
    return hashlib.sha256(token.encode()).hexdigest()


def bearer(header: str | None) -> str | None:
    """The token of an `Authorization: Bearer …` header, or None."""
    scheme, _, token = (header or "").partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and token else None
