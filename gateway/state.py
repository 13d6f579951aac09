"""What a gateway process holds between requests, and how a new configuration enters it."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gateway import settings
from gateway.budgets import BudgetKeeper, kept_budgets
from gateway.caches.caches import AnswerCaches
from gateway.decisions import DecisionLog
from gateway.engine_watch import EngineWatch, Held
from gateway.feedback import FeedbackEvents, FeedbackRate, RecentRequests
from gateway.feedback import apply as apply_feedback
from gateway.fingerprints import Fingerprints
from gateway.measure import EngineTokenizer, Measure
from gateway.metrics import Metrics, Moment
from gateway.peers import keep_live_gateways, kept_live_gateways
from gateway.pools import PoolOptions, Pools
from gateway.quotas import Quotas
from gateway.redis_link import RedisLink
from gateway.schemas import Schemas
from gateway.session_ledger import SessionLedger
from gateway.sessions import Sessions
from gateway.shared_breakers import SharedBreakers
from gateway.shared_feedback import SharedFeedback
from gateway.sketches import MinuteSketches
from gateway.upstream import engine_session
from gateway.view import View, compile_view
from policy.draws import EvenDraws
from policy.retry import RetryBudget
from wire.settings import Setting
from wire.snapshot import GatewaySnapshot, Snapshot

if TYPE_CHECKING:
    from gateway.batches.batches import Batches


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
    heartbeat_seconds: float
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
            settings.HEARTBEAT_SECONDS.read(),
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
        self.redis = RedisLink(settings.REDIS_URL.read(), settings.REDIS_ANSWER_SECONDS.read(), self.unix_ms)
        if self.redis.client is not None:
            self.quotas.count_together(self.redis)
        self._budgets = BudgetKeeper(state_dir, self.quotas.changed_days, settings.BUDGET_KEEP_SECONDS.read())
        self.retries = RetryBudget(settings.RETRY_BUDGET_PERMILLE.read(), settings.RETRY_BURST.read())
        self.recent = RecentRequests(settings.FEEDBACK_REQUESTS.read())
        self.feedback_rate = FeedbackRate(settings.FEEDBACK_PER_MINUTE.read(), self.now_ms)
        self.feedback_events = FeedbackEvents(self.metrics.caches.feedback_dropped.inc)
        self.fingerprints = Fingerprints(self.metrics.patterns)
        self.sessions = Sessions(self.now_ms, self.metrics.patterns, settings.SESSIONS.read())
        if self.redis.client is not None:
            self.sessions.count_together(SessionLedger(self.redis, lease_ms))
        self.stream_state: Callable[[], StreamState] = lambda: StreamState(False, 0, None)
        self._state_dir = state_dir
        self._live_gateways = kept_live_gateways(state_dir)
        self._request_numbers = itertools.count()
        self.http = engine_session()
        engines = EngineTokenizer(self.http, self._stands_well, self.now_ms)
        self.measure = Measure(state_dir / "artifacts", fetch, engines)
        look_seconds, stale_seconds = settings.ENGINE_LOOK_SECONDS.read(), settings.ENGINE_STALE_SECONDS.read()
        gone_seconds = self.limits.stream_silence_seconds
        self.engine_watch = EngineWatch(self.http, self.now_ms, look_seconds, stale_seconds, gone_seconds)
        self.pools = Pools(self, self.engine_watch, _pool_options(self.limits))
        self.engine_watch.held = lambda name: Held(*self.pools.held(name))
        self.schemas = Schemas(self)
        self.engine_watch.on_look = self._looked
        self.engine_watch.on_gone = self.pools.gone
        self.engine_watch.on_restart = self.schemas.warm_up.started
        self.draws = EvenDraws(random.random)
        self.caches = AnswerCaches(self.http, self._stands_well, self.now_ms, self.metrics.caches)
        self.shared_breakers = SharedBreakers(self.redis, self.unix_ms, self.pools.apply_remote)
        self.pools.on_breaker_change = self.shared_breakers.on_change
        self.shared_feedback = SharedFeedback(self.redis, partial(apply_feedback, self))
        # Set where a control plane is followed.
        self.batches: Batches | None = None
        # When the certificate that is served ends, as Unix time; None: plain HTTP, or not known.
        self.certificate_end: Callable[[], float | None] = lambda: None
        self.redis.start()

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
        self.engine_watch.configure(view)
        self.pools.configure(view, self._live_gateways)
        self.measure.configure(view)
        self.schemas.configure(view)
        self.sessions.configure(view)
        self.caches.configure(view)
        self.view = view

    def _looked(self, engine: str) -> None:
        self.schemas.warm_up.looked(engine)
        self.pools.looked(engine)

    def _stands_well(self, view: View, engine: str) -> bool:
        return self.pools.stands_well(engine)

    async def on_peers(self, live_gateways: int) -> None:
        """Take the share of one of `live_gateways`, from the next request on."""
        if live_gateways == self._live_gateways:
            return
        self._live_gateways = live_gateways
        if self.view is not None:
            self.quotas.configure(self.view, live_gateways)
            self.pools.configure(self.view, live_gateways)
        await asyncio.to_thread(keep_live_gateways, self._state_dir, live_gateways)

    def saturated(self) -> bool:
        """Whether no pool has room in its queue."""
        return self.pools.saturated()

    def upstream_request_id(self, request_id: bytes) -> str:
        """A client may send one id twice; engines take an id for one request, so each sending gets its own."""
        return f"{request_id.decode()}-{next(self._request_numbers):x}"

    def moment(self) -> Moment:
        stream = self.stream_state()
        view = self.view
        if view is not None:
            self.sessions.sweep(view)
        return Moment(
            revision=view.revision if view else 0,
            connected=stream.connected,
            draining=self.draining,
            in_flight=len(self.running),
            persist_errors=stream.persist_errors,
            engines=self.pools.engines(),
            forced=self.pools.forced(),
            pools=self.pools.moments(),
            looks=self.engine_watch.rows(),
            ledger=self.quotas.moment(),
            rooms=() if self.batches is None else tuple(self.batches.rooms.moments()),
            certificate_ends_at=self.certificate_end(),
            sessions=self.sessions.busiest(),
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
        await self.quotas.close(_LAST_SETTLES_SECONDS)
        await self.sessions.close()
        await self.shared_breakers.close()
        await self.shared_feedback.close()
        await self.redis.close()
        await self._budgets.end()
        await self.schemas.warm_up.close()
        await self.engine_watch.close()
        await self.measure.close()
        await self.http.close()


# How long a gateway that ends goes on telling the Redis what its last requests used.
_LAST_SETTLES_SECONDS = 2.0
NOTHING_YET = compile_view(GatewaySnapshot(schema=1), 0)


def _pool_options(limits: Limits) -> PoolOptions:
    return PoolOptions(
        overtakings=settings.OVERTAKINGS.read(),
        affinity_spread_permille=settings.AFFINITY_SPREAD_PERMILLE.read(),
        affinity_blocks=settings.AFFINITY_BLOCKS.read(),
        retry_seconds=limits.capacity_retry_seconds,
        longest_seconds=limits.max_request_seconds,
    )


def _milliseconds(*rows: Setting[float]) -> int:
    return int(sum(row.read() for row in rows) * 1000)
