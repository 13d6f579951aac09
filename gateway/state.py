"""What a gateway process holds between requests, and how a new configuration enters it."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import aiohttp

from gateway import settings
from gateway.budgets import BudgetKeeper, kept_budgets
from gateway.decisions import DecisionLog
from gateway.engines import Fleet
from gateway.measure import Measure
from gateway.metrics import Metrics, Moment
from gateway.peers import keep_live_gateways, kept_live_gateways
from gateway.quotas import Quotas
from gateway.sketches import MinuteSketches
from gateway.view import View, compile_view
from policy.retry import RetryBudget
from wire.settings import Setting
from wire.snapshot import GatewaySnapshot, Snapshot


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one request, from the settings of the same names."""

    max_body_bytes: int
    max_header_bytes: int
    max_answer_bytes: int
    body_timeout_seconds: float
    last_send_seconds: float
    max_request_seconds: float
    stream_silence_seconds: float
    capacity_retry_seconds: float

    @classmethod
    def read(cls) -> Limits:
        return cls(
            settings.MAX_BODY_BYTES.read(),
            settings.MAX_HEADER_BYTES.read(),
            settings.MAX_ANSWER_BYTES.read(),
            settings.BODY_TIMEOUT_SECONDS.read(),
            settings.LAST_SEND_SECONDS.read(),
            settings.MAX_REQUEST_SECONDS.read(),
            settings.STREAM_SILENCE_SECONDS.read(),
            settings.CAPACITY_RETRY_SECONDS.read(),
        )


class StreamState(NamedTuple):
    """How the configuration stream stands. `error`: what is wrong with it or with the newest slice, for operators."""

    connected: bool
    persist_errors: int
    error: str | None


class Gateway:
    """One gateway. `fetch(path)` gets an artifact from the control plane. Make it inside a running event loop."""

    def __init__(self, state_dir: Path, fetch: Callable[[str], Awaitable[bytes]]) -> None:
        self.limits = Limits.read()
        self.view: View | None = None
        self.draining = False
        self.running: set[asyncio.Task[object]] = set()
        self.metrics = Metrics()
        self.decisions = DecisionLog(settings.DECISIONS_WAITING.read(), self.metrics.dropped_decision)
        self.sketches = MinuteSketches(self.unix_ms, settings.SKETCHES_WAITING.read(), self.metrics.dropped_sketches)
        lease_ms = _milliseconds(settings.MAX_REQUEST_SECONDS, settings.LEASE_SECONDS)
        self.quotas = Quotas(self.now_ms, self.unix_ms, lease_ms, kept_budgets(state_dir))
        self._budgets = BudgetKeeper(state_dir, self.quotas.changed_days, settings.BUDGET_KEEP_SECONDS.read())
        self.fleet = Fleet(self.limits.capacity_retry_seconds)
        self.retries = RetryBudget(settings.RETRY_BUDGET_PERMILLE.read(), settings.RETRY_BURST.read())
        self.measure = Measure(state_dir / "artifacts", fetch)
        self.stream_state: Callable[[], StreamState] = lambda: StreamState(False, 0, None)
        self._state_dir = state_dir
        self._live_gateways = kept_live_gateways(state_dir)
        self._request_numbers = itertools.count()
        self.http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=settings.UPSTREAM_KEEP_ALIVE_SECONDS.read()),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=settings.CONNECT_TIMEOUT_SECONDS.read()),
            # An engine's cookies are nobody's here.
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
        )

    @staticmethod
    def now_ms() -> int:
        """Monotonic: quotas, breakers."""
        return time.monotonic_ns() // 1_000_000

    @staticmethod
    def unix_ms() -> int:
        """Wall time: expiry of keys, overrides and temporary limits, hours of a schedule, days of a budget."""
        return time.time_ns() // 1_000_000

    def on_snapshot(self, snapshot: Snapshot, revision: int) -> None:
        """Serve the next request by this slice. Raises: SnapshotRefused; everything then stays as it was."""
        view = compile_view(snapshot, revision)
        self.quotas.configure(view, self._live_gateways)
        self.fleet.configure(view)
        self.measure.configure(view)
        self.view = view

    async def on_peers(self, live_gateways: int) -> None:
        """Take the share of one of `live_gateways`, from the next request on."""
        if live_gateways == self._live_gateways:
            return
        self._live_gateways = live_gateways
        if self.view is not None:
            self.quotas.configure(self.view, live_gateways)
        await asyncio.to_thread(keep_live_gateways, self._state_dir, live_gateways)

    def upstream_request_id(self, request_id: bytes) -> str:
        """A client may send one id twice; engines take an id for one request, so each sending gets its own."""
        return f"{request_id.decode()}-{next(self._request_numbers):x}"

    def moment(self) -> Moment:
        stream = self.stream_state()
        view = self.view
        return Moment(
            revision=view.revision if view else 0,
            connected=stream.connected,
            draining=self.draining,
            in_flight=len(self.running),
            persist_errors=stream.persist_errors,
            engines=self.fleet.states(view, self.now_ms(), self.unix_ms()) if view else [],
        )

    async def drain(self, seconds: float) -> None:
        """Take no new work, let running requests end for at most `seconds`, then cut the rest.

        A request that was cut still tells its client, who has `last_send_seconds` to read it; then it is given up.
        """
        self.draining = True
        if self.running:
            await asyncio.wait(self.running, timeout=seconds)
        for task in self.running:
            task.cancel()
        if self.running:
            await asyncio.wait(self.running, timeout=self.limits.last_send_seconds + 1)

    async def close(self) -> None:
        await self._budgets.end()
        await self.measure.close()
        await self.http.close()


NOTHING_YET = compile_view(GatewaySnapshot(schema=1), 0)


def _milliseconds(*rows: Setting[float]) -> int:
    return int(sum(row.read() for row in rows) * 1000)
