"""Tenants whose state at the Redis is not as a gateway writes it, set by hand or by another program.

Such a tenant alone is counted by each gateway's share, as all are while the Redis is away; the others stay together.
Its keys are left as they are, and looked at until they can be read or are gone: then it is counted together again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.quota.ledger import Operation

log = logging.getLogger("headworks.gateway.quota")
# Well within what the script waits for all gateways to tell what they have left (MERGE_MS).
_LOOK_SECONDS = 2.0


class _Tenant:
    __slots__ = ("look", "lost_at_ms", "waiting")

    def __init__(self, lost_at_ms: int) -> None:
        self.lost_at_ms = lost_at_ms
        # What must not be lost.
        self.waiting: deque[Operation] = deque()
        self.look: asyncio.TimerHandle | None = None


class Unreadable:
    """`look`: ask about a tenant again. Nothing here outlives `close`."""

    def __init__(self, look: Callable[[str], None]) -> None:
        self._look = look
        self._tenants: dict[str, _Tenant] = {}

    def __contains__(self, tenant: str) -> bool:
        return tenant in self._tenants

    def __len__(self) -> int:
        """Operations that wait."""
        return sum(len(tenant.waiting) for tenant in self._tenants.values())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._tenants))

    def lost_at_ms(self, tenant: str) -> int:
        """Since when, by the clock of the Redis."""
        return self._tenants[tenant].lost_at_ms

    def part(self, tenant: str, why: str, now_ms: int) -> None:
        """Its state was found unreadable, for the first time or still."""
        if tenant not in self._tenants:
            log.warning(
                "the quota of tenant %s at the Redis cannot be read (%s): its limits alone are held by this gateway's "
                "share until the keys headworks:quota:{%s} and headworks:quota:{%s}:leases are put right or deleted",
                *(tenant, why, tenant, tenant),
            )
        held = self._tenants.setdefault(tenant, _Tenant(now_ms))
        if held.look is not None:
            held.look.cancel()
        held.look = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look, tenant)

    def keep(self, operation: Operation) -> None:
        """Until its tenant is back; of one that fails at once, nothing."""
        if operation.until_ms:
            self._tenants[operation.tenant].waiting.append(operation)
        else:
            operation.answered(None)

    def oldest(self) -> Operation:
        """Take out one of those that wait longest, to be given up."""
        return max(self._tenants.values(), key=lambda tenant: len(tenant.waiting)).waiting.popleft()

    def forget(self, tenant: str) -> deque[Operation]:
        """Its state can be read again, or it is no tenant any more. What waited for that."""
        held = self._tenants.pop(tenant)
        if held.look is not None:
            held.look.cancel()
        return held.waiting

    def close(self) -> None:
        for tenant in self._tenants.values():
            if tenant.look is not None:
                tenant.look.cancel()
