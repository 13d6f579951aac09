"""Names that gateways tell, held against what is configured: only those are kept, as in labels of metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from controlplane.core.nouns import Noun
from controlplane.fleet.services import POOLS
from controlplane.tenants.services import PRIORITY_CLASSES, TENANTS

UNKNOWN = "unknown"


class KnownNames:
    """Of the names in some messages, those that are configured now; each method gives `unknown` for the others."""

    def __init__(self, messages: Iterable[Any]) -> None:
        messages = list(messages)
        self.tenant = _known(TENANTS, {message.tenant for message in messages})
        self.priority_class = _known(PRIORITY_CLASSES, {message.priority_class for message in messages})
        self.pool = _known(POOLS, {message.pool for message in messages})


def _known(noun: Noun[Any], told: set[str]) -> Callable[[str], str]:
    # Some names in the messages could be no name at all, such as one with U+0000, which PostgreSQL cannot look up.
    asked = [name for name in told if noun.name_like.refusal(name) is None]
    known = set(noun.queryset().filter(name__in=asked).values_list("name", flat=True))
    return lambda name: name if name in known else UNKNOWN
