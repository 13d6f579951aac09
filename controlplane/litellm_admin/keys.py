"""Which key a call means: LiteLLM's calls name one by itself, by its SHA-256, or by what `token` was answered."""

from __future__ import annotations

import re

from controlplane.core.errors import Conflict, NotFound
from controlplane.core.scope import Tenants, within
from controlplane.core.tokens import token_hash
from controlplane.tenants.models import TenantKey

_NUMBER = re.compile(r"[0-9]{1,18}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def find_key(text: str, tenants: Tenants) -> TenantKey:
    """The key, of these tenants. Raises NotFound, which does not repeat what may be a secret."""
    keys = within(TenantKey.objects.select_related("tenant"), "tenant__name", tenants)
    if _NUMBER.fullmatch(text):
        row = keys.filter(pk=int(text)).first()
    else:
        row = keys.filter(key_hash=text if _SHA256.fullmatch(text) else token_hash(text)).first()
    if row is None:
        raise NotFound("there is no such key; give the key itself, its SHA-256, or the `token` of an answer")
    return row


def find_by_alias(alias: str, tenants: Tenants) -> TenantKey:
    """The one key with this label. Raises NotFound, or Conflict where several have it."""
    keys = within(TenantKey.objects.select_related("tenant"), "tenant__name", tenants)
    found = list(keys.filter(label=alias).order_by("pk")[:2])
    if not found:
        raise NotFound(f"there is no key with the alias {alias!r}")
    if len(found) > 1:
        raise Conflict(f"several keys have the alias {alias!r}; name the one that you mean in `keys`", code="ambiguous")
    return found[0]
