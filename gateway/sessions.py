"""Sessions of agents: what each has used, and the stage that closes one at its ceilings.

A session is what clients name in X-Session-Id, within their tenant. Its calls are counted whether or not its tenant
has session limits, since calls per session are what capacity is planned by.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import UNSET

from gateway.pattern_metrics import BusiestSession
from gateway.refusals import Refused
from gateway.session_ledger import Closing, Held, SessionLedger
from policy.admission import bounded_output
from policy.session_book import SessionBook
from policy.sessions import NOTHING, Admitted, Call, Ended, Session, Spent, judge, near_ceilings
from policy.tool_calls import calls_running
from wire.snapshot import Model, SessionLimits, Tenant

if TYPE_CHECKING:
    from gateway.exchange import Exchange
    from gateway.pattern_metrics import PatternMetrics
    from gateway.view import View

_SESSION_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
_MAX_DEPTH_DIGITS = 4
_JUST_NOW_MS = 60_000
# So many times running the same call is a loop, whether or not the tenant bounds it. Source: seed 1, section 14.
_LOOP_CALLS = 3
NO_LIMITS = SessionLimits()
_UNITS = {"iterations": "model calls", "tokens": "tokens", "cost": "micros"}


class SessionLease:
    """What one call holds of its session. `settle` gives it back; only the first call counts."""

    __slots__ = ("_beside", "_call", "_limits", "_reserved", "_session", "_sessions", "_settled", "_tenant", "held")

    def __init__(
        self, sessions: Sessions, tenant: str, session: Session, limits: SessionLimits, call: Call, reserved: Spent
    ) -> None:
        self._sessions, self._tenant, self._session, self._limits = sessions, tenant, session, limits
        self._call, self._reserved = call, reserved
        # At all gateways together.
        self.held: Held | None = None
        self._beside = NOTHING
        self._settled = False

    @property
    def used(self) -> Spent:
        """What the whole session has used so far."""
        return self._session.used

    def price_by(self, model: Model) -> None:
        """Another model answers than was asked for."""
        self._call = priced(self._call, model)

    def reserve_beside(self, model: Model, prompt_tokens: int, output_tokens: int, sequences: int) -> bool:
        """Reserve for another model's answer, if the session has room for both."""
        most = priced(Call(prompt_tokens, output_tokens, sequences), model).most(output_tokens)._replace(iterations=0)
        if not self._session.take_more(self._limits, most):
            return False
        self._reserved = self._reserved.plus(most)
        return True

    def add(self, model: Model, prompt_tokens: int, output_tokens: int) -> None:
        """What another model used beside the one that answers."""
        self._beside = priced(self._call, model).taken(prompt_tokens, output_tokens)._replace(iterations=0)

    def settle(self, prompt_tokens: int, output_tokens: int, *, counts: bool) -> None:
        """Replace the reservation by what was used. A call that was neither answered nor sent to an engine is none."""
        if self._settled:
            return
        self._settled = True
        taken = self._call.taken(prompt_tokens, output_tokens).plus(self._beside) if counts else NOTHING
        self._session.settle(self._reserved, taken, self._sessions.now_ms())
        self._sessions.settled(self._tenant, self._session, self._limits, self.held, taken)


class Sessions:
    """All sessions that this gateway knows, `most` at once. `now_ms` is monotonic, so a clock that is set ends none."""

    def __init__(self, now_ms: Callable[[], int], metrics: PatternMetrics, most: int) -> None:
        self.now_ms, self._metrics = now_ms, metrics
        self._book = SessionBook(most, metrics.session_began, self._forgotten)
        self._ledger: SessionLedger | None = None

    def count_together(self, ledger: SessionLedger) -> None:
        """From now on count with all gateways, whenever their Redis is there."""
        self._ledger = ledger

    async def close(self) -> None:
        if self._ledger is not None:
            await self._ledger.close()

    def configure(self, view: View) -> None:
        """Forget the sessions of tenants that are gone."""
        self._book.keep_tenants(view.snapshot.tenants)

    def sweep(self, view: View) -> None:
        """Forget sessions that have been idle, some at a time."""
        tenants = view.snapshot.tenants
        # A call that came before its tenant was removed may have begun one since `configure`.
        self._book.keep_tenants(tenants)
        self._book.sweep(lambda name: limits_of(view, tenants[name]).idle_ms, self.now_ms())

    async def take(
        self, tenant: str, session_id: str, limits: SessionLimits, call: Call
    ) -> tuple[Admitted | Ended, SessionLease | None]:
        """Reserve for one call of a session; the lease is there where it is admitted."""
        together = None
        if self._ledger is not None and self._ledger.alive and limits is not NO_LIMITS:
            together = await self._ledger.take(tenant, session_id, call.most(call.output_tokens), limits.idle_ms)
        session = self._book.find(tenant, session_id, limits.idle_ms, self.now_ms())
        running, held = NOTHING, None
        if together is not None:
            standing, held = together
            session.seen(standing.used, *(standing.closed or (None, None)))
            running = standing.running
        verdict = self._judged(tenant, session, limits, call, running)
        if isinstance(verdict, Ended):
            if held is not None and self._ledger is not None:
                self._ledger.settle(held, NOTHING, Closing(verdict, limits) if verdict.closes else None)
            return verdict, None
        lease = SessionLease(self, tenant, session, limits, call, verdict.reserved)
        lease.held = held
        return verdict, lease

    def busiest(self) -> list[BusiestSession]:
        """Of each tenant, of its sessions that were used within a minute and are not closed."""
        lately = self._book.used_since(self.now_ms() - _JUST_NOW_MS)
        open_ones = ((tenant, [each for each in used if each.closed is None]) for tenant, used in lately)
        return [
            BusiestSession(tenant, max(each.calls for each in used), max(each.used.tokens for each in used))
            for tenant, used in open_ones
            if used
        ]

    def settled(self, tenant: str, session: Session, limits: SessionLimits, held: Held | None, taken: Spent) -> None:
        """Tell of a call that has ended; a session that has come near one of its ceilings is counted once."""
        if held is not None and self._ledger is not None:
            self._ledger.settle(held, taken)
        for ceiling in near_ceilings(limits, session.used):
            if ceiling not in session.near:
                session.near.add(ceiling)
                self._metrics.session_near(tenant, f"session_{ceiling}")

    def _judged(
        self, tenant: str, session: Session, limits: SessionLimits, call: Call, running: Spent
    ) -> Admitted | Ended:
        was_closed = session.closed
        verdict = session.take(limits, call, running)
        if isinstance(verdict, Ended) and session.closed is not was_closed:
            self._metrics.session_closed(tenant, f"session_{verdict.ceiling}")
        return verdict

    def _forgotten(self, tenant: str, session: Session) -> None:
        self._metrics.session_forgotten(tenant, session.calls)


def limits_of(view: View, tenant: Tenant) -> SessionLimits:
    """The limits that the tenant names; none of them is set where it names none."""
    name = tenant.session_limits
    return NO_LIMITS if name is UNSET else view.snapshot.session_limits.get(name, NO_LIMITS)


async def check_session(x: Exchange) -> None:
    """The ceilings of the call's session. A call that names no session is one by itself.

    Raises: Refused (`bad_header`, `session_iterations`, `session_tokens`, `session_cost`, `session_depth`,
    `session_repeated_call`).
    """
    session_id, depth = _headers(x)
    limits = limits_of(x.view, x.tenant)
    if session_id is None and limits is NO_LIMITS:
        return
    call = _call(x, depth)
    if session_id is None:
        admitted = judge(limits, NOTHING, NOTHING, call)
    else:
        admitted, x.session = await x.gateway.sessions.take(x.tenant_name, session_id, limits, call)
    x.note(depth=call.depth, repeated_calls=call.repeated)
    if isinstance(admitted, Ended):
        raise _refusal(x, session_id, limits, admitted)
    if call.repeated >= _LOOP_CALLS:
        x.gateway.metrics.patterns.tool_call_repeated(x.tenant_name)
    if x.session is not None:
        calls, tokens, cost_micros = x.session.used
        x.note(used_calls=calls, used_tokens=tokens, used_cost_micros=cost_micros)
    x.session_output_tokens = admitted.output_tokens


def _headers(x: Exchange) -> tuple[str | None, int]:
    """X-Session-Id and X-Agent-Depth; 0 where no depth is told. Raises: Refused (`bad_header`)."""
    session_id, depth = x.headers.get(b"x-session-id"), x.headers.get(b"x-agent-depth")
    if session_id is not None and not _SESSION_ID.fullmatch(session_id):
        raise Refused("bad_header", "X-Session-Id must be 1 to 128 letters, digits or any of . _ : / + = -")
    if depth is not None and not (depth.isdigit() and len(depth) <= _MAX_DEPTH_DIGITS):
        raise Refused("bad_header", f"X-Agent-Depth must be a whole number of at most {_MAX_DEPTH_DIGITS} digits")
    return None if session_id is None else session_id.decode(), int(depth or 0)


def _call(x: Exchange, depth: int) -> Call:
    output_tokens = 0
    if x.ask.generates:
        output_tokens = bounded_output(x.ask.asked_max_tokens, x.size.longest, x.model, x.tenant).max_tokens
    repeated = calls_running(x.ask.raw(x.ask.api.text_field))
    call = Call(x.size.tokens, output_tokens, x.ask.sequences, depth=depth, repeated=repeated)
    return priced(call, x.model)


def priced(call: Call, model: Model) -> Call:
    """The call at a model's prices."""
    return call._replace(
        prompt_cost_micros=model.prompt_token_cost_micros, output_cost_micros=model.output_token_cost_micros
    )


def _refusal(x: Exchange, session_id: str | None, limits: SessionLimits, ended: Ended) -> Refused:
    whose = "the call" if session_id is None else f"the session {session_id!r}"
    idle_seconds = limits.idle_ms / 1000
    match ended.ceiling:
        case "depth":
            said = f"{whose} is {ended.asked} agents deep by X-Agent-Depth; at most {ended.limit} are allowed"
        case "repeated_call":
            said = (
                f"{whose} has called the same tool with the same arguments {ended.asked} times running; "
                f"from {ended.limit} times on it is taken for a loop"
            )
        case ceiling:
            said = (
                f"{whose} has used {ended.used} of {ended.limit} {_UNITS[ceiling]}; "
                f"its running calls may use {ended.running}, and this one needs at least {ended.asked}"
            )
    if ended.closes and session_id is not None:
        said += f"; it is closed until nobody has used it for {idle_seconds:g} s"
    return Refused(
        f"session_{ended.ceiling}",
        said,
        retry_after_seconds=idle_seconds if ended.closes else x.gateway.limits.capacity_retry_seconds,
        numbers={"asked": ended.asked, "used": ended.used, "running": ended.running, "limit": ended.limit},
    )
