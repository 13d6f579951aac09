"""Which sessions are known: bounded, so that no client can fill the memory with names that it makes up."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Iterator
from itertools import takewhile

from policy.sessions import Session

# Sessions that are looked at in one `sweep`, some microseconds each.
_SWEPT_AT_ONCE = 500


class SessionBook:
    """Sessions by tenant and id, `most` in all.

    `began(tenant)` hears of each new one, `forgotten(tenant, session)` of each that is known no longer.
    Where there is no room for a new one, the tenant with the most sessions loses the one that it used the longest ago:
    a tenant that makes up sessions without end pushes out its own. Times are monotonic milliseconds.
    """

    def __init__(self, most: int, began: Callable[[str], None], forgotten: Callable[[str, Session], None]) -> None:
        self._most, self._began, self._forgotten = most, began, forgotten
        # Those used the longest ago first.
        self._tenants: dict[str, OrderedDict[str, Session]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def find(self, tenant: str, session_id: str, idle_ms: int, now_ms: int) -> Session:
        """The session, which is used now; a new one where it is not known or nobody has used it for `idle_ms`."""
        sessions = self._tenants.setdefault(tenant, OrderedDict())
        session = sessions.get(session_id)
        if session is not None and session.is_idle(idle_ms, now_ms):
            self._forget(tenant, session_id)
            session = None
        if session is None:
            if self._count >= self._most:
                self._make_room()
            # The last session of this very tenant may have had to go, and its map with it.
            sessions = self._tenants.setdefault(tenant, sessions)
            session = sessions[session_id] = Session(now_ms)
            self._count += 1
            self._began(tenant)
        sessions.move_to_end(session_id)
        session.last_used_ms = now_ms
        return session

    def sweep(self, idle_ms_of: Callable[[str], int], now_ms: int) -> None:
        """Forget sessions that nobody uses any more; a few hundred at most in one call."""
        left = _SWEPT_AT_ONCE
        for tenant in list(self._tenants):
            idle_ms = idle_ms_of(tenant)
            while left and (sessions := self._tenants.get(tenant)):
                session_id = next(iter(sessions))
                if not sessions[session_id].is_idle(idle_ms, now_ms):
                    break
                self._forget(tenant, session_id)
                left -= 1

    def used_since(self, since_ms: int) -> Iterator[tuple[str, list[Session]]]:
        """Each tenant's sessions that were used at or after then, where there are any."""
        for tenant, sessions in self._tenants.items():
            newest_first = (sessions[session_id] for session_id in reversed(sessions))
            if used := list(takewhile(lambda session: session.last_used_ms >= since_ms, newest_first)):
                yield tenant, used

    def keep_tenants(self, known: Container[str]) -> None:
        """Forget the sessions of tenants that exist no longer."""
        for tenant in [name for name in self._tenants if name not in known]:
            for session_id in list(self._tenants[tenant]):
                self._forget(tenant, session_id)

    def _make_room(self) -> None:
        tenant = max(self._tenants, key=lambda name: len(self._tenants[name]))
        self._forget(tenant, next(iter(self._tenants[tenant])))

    def _forget(self, tenant: str, session_id: str) -> None:
        sessions = self._tenants[tenant]
        session = sessions.pop(session_id)
        if not sessions:
            del self._tenants[tenant]
        self._count -= 1
        self._forgotten(tenant, session)
