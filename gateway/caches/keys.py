"""What makes two requests the same, and what a client says of caches.

The whole body is in the key, field by field as it came, since the gateway does not know what an unknown field changes;
only white space between fields and their order are not. A tenant's answers lie on a shelf of its own. Its keys are no
part of that: the gateway allows and limits tenants, so whatever one key of a tenant may see, its others may.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from gateway.view import View
from wire.snapshot import Model, Tenant

Buffer = bytes | msgspec.Raw
# Answers may be kept of these alone. One of /v1/responses is state that later requests refer to by its id.
CACHED_ENDPOINTS = frozenset(("chat", "completions", "messages", "embeddings", "rerank"))
_NOTHING = (b"null", b"[]", b"{}", b'""')
_MAX_AGE = re.compile(rb"(?:^|,)\s*max-age\s*=\s*\"?(\d{1,9})")
_NO_STORE = re.compile(rb"(?:^|,)\s*no-store\b")
_NO_CACHE = re.compile(rb"(?:^|,)\s*no-cache\b")


@dataclass(frozen=True, slots=True)
class Wish:
    """What `Cache-Control` of a request asks for. Source: RFC 9111, 5.2.1.

    `read`: a kept answer will do, if it is not older than `max_age_ms`. `write`: the answer may be kept.
    """

    read: bool = True
    write: bool = True
    max_age_ms: int | None = None

    @classmethod
    def of(cls, header: bytes | None) -> Wish:
        if header is None:
            return _NO_WISH
        said = header.lower()
        store = _NO_STORE.search(said) is None
        age = _MAX_AGE.search(said)
        return cls(store and _NO_CACHE.search(said) is None, store, int(age[1]) * 1000 if age else None)


_NO_WISH = Wish()


def has(fields: Mapping[str, msgspec.Raw], *names: str) -> bool:
    """Whether any of these fields is there and says something."""
    return any(name in fields and bytes(fields[name]) not in _NOTHING for name in names)


def key_of(fields: Mapping[str, msgspec.Raw], context: Iterable[bytes], instead: Mapping[str, bytes | None]) -> bytes:
    """SHA-256 of the `context` of a request and of all fields of its body.

    Those of `instead` count by these values; by None, not at all.
    """
    digest = hashlib.sha256()
    for part in context:
        _add(digest, part)
    for name in sorted(fields):
        value = instead.get(name, fields[name])
        if value is not None:
            _add(digest, name.encode())
            _add(digest, value)
    return digest.digest()


def _add(digest: hashlib._Hash, part: Buffer) -> None:
    # With its length, so that no two lists of parts look alike.
    digest.update(b"%d:" % len(part))
    digest.update(part)


class Configurations:
    """What of the configuration decides about an answer, as bytes: worked out once for each view."""

    def __init__(self) -> None:
        self._view: View | None = None
        self._digest = b""

    def of(self, view: View, model: Model, tenant: Tenant) -> bytes:
        """Routes, what pools serve, the model's own rows and the tenant's cap: another one of them, another answer."""
        if self._view is not view:
            self._view, self._digest = view, _answering(view)
        cap = tenant.max_tokens_cap
        return self._digest + msgspec.json.encode(model) + (b"%d" % cap if isinstance(cap, int) else b"")


def _answering(view: View) -> bytes:
    served = {
        name: [pool.model, *sorted({view.snapshot.engines[engine].served_model for engine in view.engines_of[name]})]
        for name, pool in view.snapshot.pools.items()
    }
    return hashlib.sha256(msgspec.json.encode([dict(view.routes), served], order="sorted")).digest()
