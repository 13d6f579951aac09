"""Sending samples and events to the control plane; what it cannot take now waits in a spool, oldest first.

A target runs one `MetricPush` and, if it has events, one `EventPush`, each with a spool of its own, so that samples
never push an event out.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from wire.control_api import JSON_BODY, TargetRefused, TargetUnavailable
from wire.messages import UNREADABLE, Event
from wire.pace import Pace
from wire.sending import FAILURES, TOO_LARGE, Told, refuses_body, retry_delay_seconds
from wire.spool import Spool
from wire.target import TargetClient
from wire.write_body import CONTENT_ENCODING, CONTENT_TYPE, VERSION, VERSION_HEADER, Series, encode, halves

log = logging.getLogger("headworks.push")

WRITE_PATH = "/prometheus/api/v1/write"
EVENTS_PATH = "/api/v1/events"
_WRITE_HEADERS = {"Content-Type": CONTENT_TYPE, "Content-Encoding": CONTENT_ENCODING, VERSION_HEADER: VERSION}
# The next samples come in some seconds: one that is not taken by then is spooled.
_AT_ONCE_SECONDS = 3.0
_EVENTS_AT_ONCE = 100
_EVENTS_BYTES = 1 << 20
# Events of a machine whose disk is full; an operator must still hear of them.
_EVENTS_IN_MEMORY = 1_000


class MetricPush:
    """Pushes remote write bodies in the order in which they come. One task at a time calls `put` or `put_body`."""

    def __init__(self, client: TargetClient, spool: Spool, pace: Pace | None = None) -> None:
        self._client, self._spool = client, spool
        self._told = Told("samples")
        self._emptying = _Emptying(pace or Pace(), self._told)

    async def put(self, series: Sequence[Series]) -> None:
        """Encode in a thread, and send as `put_body`."""
        await self.put_body(await asyncio.to_thread(encode, series))

    async def put_body(self, body: bytes) -> None:
        """Send at once, or spool: where something older waits, or it cannot be sent. Spools in a thread.

        A control plane that is away and a full disk raise nothing: the log says once that samples wait or are lost.
        """
        if self._spool.waiting == 0 and await self._sent_at_once(body):
            return
        try:
            await asyncio.to_thread(self._spool.put, [body])
        except OSError as error:
            self._told.trouble(f"lost, as they can be neither sent nor spooled: {error}")
        else:
            self._emptying.wake()

    async def run(self) -> None:
        """Send what waits, oldest first, until cancelled."""

        async def send_oldest() -> None:
            for number, body in await asyncio.to_thread(self._spool.oldest, 1, 0):
                await self._send(body)
                await asyncio.to_thread(self._spool.remove, number)

        await self._emptying.run(send_oldest, lambda: self._spool.waiting > 0)

    async def _sent_at_once(self, body: bytes) -> bool:
        try:
            async with asyncio.timeout(_AT_ONCE_SECONDS):
                await self._send(body)
        except FAILURES:
            # `run` tries again at once, and says what it met.
            return False
        return True

    async def _send(self, body: bytes) -> None:
        """Returns once the body is done with: taken, or refused for good. Raises: one of FAILURES."""
        try:
            await self._client.post_bytes(WRITE_PATH, body, _WRITE_HEADERS)
        except TargetRefused as refusal:
            if not refuses_body(refusal):
                raise
            parts = halves(body) if refusal.status == TOO_LARGE else None
            if parts is None:
                self._told.trouble(f"dropped, as they are refused for good: {refusal}", same=refusal.code)
                return
            for part in parts:
                await self._send(part)
        else:
            self._told.well()


class EventPush:
    """Pushes events. Each was sent at least once when it leaves the spool; its id makes a resend count once."""

    def __init__(self, client: TargetClient, spool: Spool, pace: Pace | None = None) -> None:
        self._client, self._spool = client, spool
        self._unspooled: deque[bytes] = deque()
        self._told = Told("events")
        self._emptying = _Emptying(pace or Pace(), self._told)

    def put(self, event: Event) -> None:
        """Keep an event on disk, in memory where the disk takes nothing, and wake `run`. Call it in the event loop."""
        record = msgspec.json.encode(event)
        try:
            self._spool.put([record])
        except OSError as error:
            if len(self._unspooled) == _EVENTS_IN_MEMORY:
                log.error("event %s is lost, as %d wait in memory already: %s", event.id, _EVENTS_IN_MEMORY, error)
                return
            log.error("event %s is kept in memory alone: %s", event.id, error)
            self._unspooled.append(record)
        self._emptying.wake()

    async def run(self) -> None:
        """Send what waits, oldest first, until cancelled."""
        await self._emptying.run(self._send_oldest, lambda: self._spool.waiting > 0 or bool(self._unspooled))

    async def _send_oldest(self) -> None:
        # Those in memory first: they are lost with the process.
        if self._unspooled:
            records = [self._unspooled[place] for place in range(min(_EVENTS_AT_ONCE, len(self._unspooled)))]
            await self._send(records)
            for _ in records:
                self._unspooled.popleft()
        elif batch := await asyncio.to_thread(self._spool.oldest, _EVENTS_AT_ONCE, _EVENTS_BYTES):
            await self._send([record for _, record in batch])
            await asyncio.to_thread(self._spool.remove, batch[-1][0])

    async def _send(self, records: Sequence[bytes]) -> None:
        """Returns once all are done with. A refused batch is sent in halves, so that a bad event takes none with it.

        Raises: one of FAILURES.
        """
        try:
            answer = await self._client.post_bytes(EVENTS_PATH, b"[" + b",".join(records) + b"]", JSON_BODY)
        except TargetRefused as refusal:
            if not refuses_body(refusal):
                raise
            if len(records) == 1:
                log.error("event %s is dropped, as it is refused for good: %s", _id_of(records[0]), refusal)
                return
            middle = len(records) // 2
            await self._send(records[:middle])
            await self._send(records[middle:])
        else:
            taken = _taken(answer)
            self._told.well()
            for name in map(_id_of, records):
                if name not in taken:
                    log.error("event %s is dropped: the control plane answered, and did not take it", name)


class _Emptying:
    """The loop that empties a spool, with patience for a control plane that is away."""

    def __init__(self, pace: Pace, told: Told) -> None:
        self._pace, self._told = pace, told
        self._filled = asyncio.Event()
        self._filled.set()

    def wake(self) -> None:
        self._filled.set()

    async def run(self, send_oldest: Callable[[], Awaitable[None]], anything_waits: Callable[[], bool]) -> None:
        attempt = 0
        while True:
            if not anything_waits():
                self._filled.clear()
                await self._filled.wait()
            try:
                await send_oldest()
                attempt = 0
            except FAILURES as error:
                self._told.trouble(f"kept until they can be sent: {str(error) or type(error).__name__}")
                await asyncio.sleep(retry_delay_seconds(self._pace, attempt, error))
                attempt += 1


class _Taken(msgspec.Struct):
    taken: list[str]


class _Identified(msgspec.Struct):
    id: str = ""


def _taken(answer: bytes) -> frozenset[str]:
    """Raises: TargetUnavailable for an answer that does not say."""
    try:
        return frozenset(msgspec.json.decode(answer, type=_Taken).taken)
    except UNREADABLE:
        raise TargetUnavailable("answered with something that does not say which events were taken") from None


def _id_of(record: bytes) -> str:
    try:
        return msgspec.json.decode(record, type=_Identified).id
    except UNREADABLE:
        return "without an id"
