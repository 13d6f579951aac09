"""Works on lines: takes as many as there is room for, runs them, keeps them while they run, hands over what came of it.

Nothing of it is on disk. A gateway that dies loses its leases, and its lines run elsewhere; while the control plane is
away, what has come of lines waits in memory, and no further ones are taken.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

import msgspec

from gateway import settings
from gateway.batches.line_run import Answer, LineRun, run_line
from gateway.batches.link import Link, unavailable, whole
from gateway.batches.rooms import Rooms
from gateway.refusals import Refused
from gateway.tasks import end
from policy.batches.verdict import verdict
from wire.batches import (
    LINES_AT_ONCE,
    HeldLine,
    LeaseAnswer,
    LeasedLine,
    LeaseRequest,
    LineResult,
    Renewal,
    RenewalAnswer,
    Results,
    ResultsAnswer,
    Want,
)
from wire.messages import UNREADABLE
from wire.sending import Told

if TYPE_CHECKING:
    from gateway.state import Gateway

log = logging.getLogger("headworks.gateway.batches")
# The control plane's name for the callers of these: they are nobody's but the gateway's own.
_NOBODY = ""
# Lines that wait here for their turn, as a share of the pool's limit and at least: room must not stand empty while
# the next ones are fetched.
_AHEAD_AT_LEAST, _OTHERS_AT_ONCE = 4, 4
_HELD_BYTES = 64 * 2**20
_RESULTS_BYTES = 512 * 1024
# Nobody rests longer without being tried again: limits are changed by people.
_TENANT_RESTS_MS, _POOL_RESTS_MS = 60_000, 5_000
_LAST_SECONDS = 3.0
_AGAIN_SECONDS = 1.0
_SOON_SECONDS = 0.02


class Held:
    """A line that is this gateway's, from its lease until what came of it is handed over."""

    def __init__(self, line: LeasedLine, run: LineRun) -> None:
        self.line, self.run = line, run
        self.task: asyncio.Task[None] | None = None


class Runner:
    """`run` works until it is cancelled; then `end` hands over what is left."""

    def __init__(self, gateway: Gateway, link: Link, rooms: Rooms) -> None:
        self._gateway, self._link, self._rooms = gateway, link, rooms
        self._class = settings.BATCH_CLASS.read()
        self._poll_seconds = settings.BATCH_POLL_SECONDS.read()
        self._lines_max = settings.BATCH_LINES_MAX.read()
        self._held: dict[int, Held] = {}
        self._outbox: deque[LineResult] = deque()
        self._resting: dict[str, int] = {}
        self._lease_ms = 0
        self._ended, self._came = asyncio.Event(), asyncio.Event()
        self._told = Told("results of lines")

    async def run(self) -> None:
        loops = (self._rooms.run(), self._take_lines(), self._keep_lines(), self._hand_over())
        try:
            async with asyncio.TaskGroup() as tasks:
                for loop in loops:
                    tasks.create_task(loop)
        except* Exception:
            log.exception("lines of batches are no longer run")

    def drain(self) -> None:
        """Begin nothing more. What runs ends with the gateway's other requests."""
        self._rooms.close()

    async def end(self) -> None:
        """Once `run` was cancelled. A control plane that is away does not hold up the end."""
        await end(*(held.task for held in self._held.values() if held.task is not None))
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                while self._outbox:
                    await self._send_some()
        except (Refused, TimeoutError):
            log.info("%d lines will be run again elsewhere", len(self._outbox))

    # Taking lines

    async def _take_lines(self) -> None:
        while True:
            try:
                taken = await self._take_some()
            except Refused:
                taken = 0
            if taken:
                # More may be there, and room too.
                await asyncio.sleep(_SOON_SECONDS)
                continue
            self._ended.clear()
            try:
                async with asyncio.timeout(self._poll_seconds):
                    # Of what has just ended there may be room, but lines only if there were some.
                    await asyncio.sleep(self._poll_seconds if not self._held else self._poll_seconds / 10)
                    await self._ended.wait()
            except TimeoutError:
                pass

    async def _take_some(self) -> int:
        asked = self._request()
        if asked is None:
            return 0
        answer: LeaseAnswer = await self._post("/leases", asked, LeaseAnswer)
        self._lease_ms = answer.lease_ms
        for line in answer.lines:
            self._begin(line)
        return len(answer.lines)

    def _request(self) -> LeaseRequest | None:
        """None where there is no room for any."""
        gateway = self._gateway
        room = self._lines_max - len(self._held) - len(self._outbox)
        held_bytes = sum(_size(held.line.body) for held in self._held.values())
        held_bytes += sum(_size(result.body) for result in self._outbox)
        if gateway.draining or gateway.view is None or room <= 0 or held_bytes > _HELD_BYTES:
            return None
        names: dict[str, list[str]] = {model: [model] for model in gateway.view.snapshot.models}
        for alias, row in gateway.view.snapshot.aliases.items():
            names.setdefault(row.model, []).append(alias)
        waiting = Counter(held.run.line.model for held in self._held.values() if not held.run.has_entered)
        wants: list[Want] = []
        for model, called in names.items():
            lines = min(room, self._room_for(model) - sum(waiting[name] for name in called))
            if lines > 0:
                wants.append(Want(called, min(lines, LINES_AT_ONCE)))
                room -= lines
        now_ms = gateway.now_ms()
        self._resting = {tenant: until for tenant, until in self._resting.items() if until > now_ms}
        known = [name for called in names.values() for name in called]
        return LeaseRequest(wants, known, min(max(room, 0), _OTHERS_AT_ONCE), sorted(self._resting))

    def _room_for(self, model: str) -> int:
        """Lines of a model that may start now, and those that may wait here beside."""
        view = self._gateway.view
        pools = [] if view is None else [name for name, pool in view.snapshot.pools.items() if pool.model == model]
        return sum(
            free + max(_AHEAD_AT_LEAST, self._rooms.limit(name) // 4)
            for name in pools
            if (free := self._rooms.free(name)) > 0
        )

    # Running them

    def _begin(self, line: LeasedLine) -> None:
        if line.id in self._held:
            # It was taken for lost, and is not: what runs goes on, under the new lease.
            self._held[line.id].line = line
            return
        left_seconds = (line.ends_at_ms - self._gateway.unix_ms()) / 1000
        run = LineRun(line, self._rooms, self._class, time.monotonic() + left_seconds)
        held = self._held[line.id] = Held(line, run)
        held.task = asyncio.create_task(self._run(held), name=f"line-{line.id}")

    async def _run(self, held: Held) -> None:
        result = None
        try:
            answer = await run_line(self._gateway, held.run)
            # One that was given up has no answer.
            result = self._judge(held.line, answer) if answer.status else None
        except Exception:
            log.exception("line %d failed", held.line.id)
            result = LineResult(held.line.id, held.line.lease, "again", after_ms=_POOL_RESTS_MS)
        finally:
            self._held.pop(held.line.id, None)
            if result is not None:
                self._outbox.append(result)
                self._came.set()
            self._ended.set()

    def _judge(self, line: LeasedLine, answer: Answer) -> LineResult:
        said = verdict(answer.status, answer.reason, answer.retry_after_ms, line.tries)
        if said.outcome == "again":
            now_ms = self._gateway.now_ms()
            if answer.status == 429:
                self._resting[line.tenant] = now_ms + min(said.after_ms, _TENANT_RESTS_MS)
            elif answer.status == 503 and answer.pool and answer.reason != "draining":
                self._rooms.refused(answer.pool, min(answer.retry_after_ms, _POOL_RESTS_MS))
            return LineResult(line.id, line.lease, "again", after_ms=said.after_ms)
        try:
            body = msgspec.json.decode(answer.body, type=msgspec.Raw)
        except UNREADABLE:
            return _unusable(line, "engine_error", "the answer was no JSON")
        return LineResult(line.id, line.lease, said.outcome, answer.status, answer.request_id, body)

    # Keeping them

    async def _keep_lines(self) -> None:
        while True:
            await asyncio.sleep(self._lease_ms / 3000 if self._lease_ms else self._poll_seconds)
            if not self._held:
                continue
            held = Renewal([HeldLine(each.line.id, each.line.lease) for each in self._held.values()])
            try:
                answer: RenewalAnswer = await self._post("/renewals", held, RenewalAnswer)
            except Refused:
                continue
            for line_id in answer.lost:
                lost = self._held.get(line_id)
                # What has begun is let end: it may still be the first to do so.
                if lost is not None and lost.task is not None and lost.run.give_up():
                    lost.task.cancel()

    # Handing over

    async def _hand_over(self) -> None:
        while True:
            await self._came.wait()
            self._came.clear()
            try:
                while self._outbox:
                    await self._send_some()
                self._told.well()
            except Refused as error:
                self._told.trouble(f"kept in memory until they can be handed over: {error.message}")
                await asyncio.sleep(_AGAIN_SECONDS)
                self._came.set()

    async def _send_some(self) -> None:
        """Raises: Refused, and what was to be sent is kept."""
        some: list[LineResult] = []
        size = 0
        while len(some) < min(LINES_AT_ONCE, len(self._outbox)) and (not some or size < _RESULTS_BYTES):
            some.append(self._outbox[len(some)])
            size += _size(some[-1].body)
        try:
            await self._post("/results", Results(some), ResultsAnswer)
        except Refused as refused:
            if refused.reason == "batches_unavailable":
                raise
            if len(some) > 1:
                # One of them is not taken: it shall take no other with it.
                for result in some:
                    await self._send_alone(result)
            else:
                await self._send_alone(some[0])
        for _ in some:
            self._outbox.popleft()

    async def _send_alone(self, result: LineResult) -> None:
        try:
            await self._post("/results", Results([result]), ResultsAnswer)
        except Refused as refused:
            if refused.reason == "batches_unavailable":
                raise
            log.error("what came of line %d is not taken: %s", result.id, refused.message)
            said = LineResult(result.id, result.lease, "failed", code="result_not_taken", message=refused.message[:500])
            await self._post("/results", Results([said]), ResultsAnswer)

    async def _post(self, path: str, message: object, kind: type[Any]) -> Any:
        """Raises: Refused."""
        data = msgspec.json.encode(message)
        headers = {"Content-Type": "application/json"}
        async with self._link.call("POST", path, tenant=_NOBODY, data=data, headers=headers) as response:
            try:
                return msgspec.json.decode(await whole(response), type=kind)
            except UNREADABLE as error:
                raise unavailable(f"its answer cannot be read: {error}") from None


def _size(body: msgspec.Raw | msgspec.UnsetType) -> int:
    return 0 if body is msgspec.UNSET else len(memoryview(body))


def _unusable(line: LeasedLine, code: str, message: str) -> LineResult:
    return LineResult(line.id, line.lease, "failed", code=code, message=message)
