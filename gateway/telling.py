"""Tells the control plane of decisions, sketches and feedback, at most once a second each.

What it cannot take waits in memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import accumulate, takewhile

import msgspec

from gateway.decisions import DecisionLog
from gateway.feedback import FeedbackEvents
from gateway.sketches import MinuteSketches
from wire.control_api import JSON_BODY, TargetRefused
from wire.messages import Decision, Event
from wire.pace import Pace
from wire.push import EVENTS_PATH
from wire.sending import FAILURES, TOO_LARGE, Told, refuses_body, retry_delay_seconds
from wire.sketches import Sketch
from wire.target import TargetClient

log = logging.getLogger("headworks.gateway")

DECISIONS_PATH = "/api/v1/decisions"
SKETCHES_PATH = "/api/v1/sketches"
_INTERVAL_SECONDS = 1.0
_DECISIONS_AT_ONCE = 2_000
_SKETCHES_AT_ONCE = 500
_EVENTS_AT_ONCE = 500
# Half of what the control plane takes; of one that takes less, half of what it refused.
_BODY_BYTES = 512 * 1024
_LAST_SECONDS = 3.0
Message = Decision | Sketch | Event


class Telling:
    """Sends what the log, the sketches and clients' reports hold.

    Losing it costs an explanation, so nothing is kept on disk.
    """

    def __init__(
        self,
        client: TargetClient,
        decisions: DecisionLog,
        sketches: MinuteSketches,
        feedback: FeedbackEvents,
        pace: Pace | None = None,
    ) -> None:
        pace = pace or Pace()
        self._sketches = sketches
        self._of_decisions = Sender(client, DECISIONS_PATH, lambda: decisions.take(_DECISIONS_AT_ONCE), pace)
        self._of_sketches = Sender(client, SKETCHES_PATH, lambda: sketches.take(_SKETCHES_AT_ONCE), pace)
        self._of_feedback = Sender(client, EVENTS_PATH, lambda: feedback.take(_EVENTS_AT_ONCE), pace)

    async def run(self) -> None:
        """Send until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._of_decisions.run())
                tasks.create_task(self._of_sketches.run())
                tasks.create_task(self._of_feedback.run())
        except* Exception:
            log.exception("decisions are no longer told")

    async def end(self) -> None:
        """Send what is left, once `run` was cancelled; a control plane that is away does not hold up the end."""
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                await self._of_decisions.send_all()
                await self._of_feedback.send_all()
                await self._of_sketches.send_all()
                self._of_sketches.load(self._sketches.take(_SKETCHES_AT_ONCE, all_of_them=True))
                await self._of_sketches.send_all()
        except FAILURES as error:
            log.info("the last decisions stay untold: %s", str(error) or type(error).__name__)


class Sender:
    """One path, its messages in order: a batch leaves when it was taken, or refused for good."""

    def __init__(self, client: TargetClient, path: str, take: Callable[[], Sequence[Message]], pace: Pace) -> None:
        self._client, self._path, self._take, self._pace = client, path, take, pace
        self._waiting: list[bytes] = []
        self._limit_bytes = _BODY_BYTES
        self._told = Told(f"messages for {path}")

    async def run(self) -> None:
        attempt = 0
        while True:
            await asyncio.sleep(_INTERVAL_SECONDS)
            try:
                await self._send_next()
                attempt = 0
            except FAILURES as error:
                self._told.trouble(f"kept in memory until they can be sent: {str(error) or type(error).__name__}")
                await asyncio.sleep(retry_delay_seconds(self._pace, attempt, error))
                attempt += 1

    async def send_all(self) -> None:
        """Raises: one of FAILURES."""
        while await self._send_next():
            pass

    def load(self, messages: Sequence[Message]) -> None:
        self._waiting += map(msgspec.json.encode, messages)

    async def _send_next(self) -> bool:
        """Send one body; whether there was any. Raises: one of FAILURES."""
        if not self._waiting:
            self.load(self._take())
        if not self._waiting:
            return False
        count = fitting(self._waiting, self._limit_bytes)
        body = b"[" + b",".join(self._waiting[:count]) + b"]"
        try:
            await self._client.post_bytes(self._path, body, JSON_BODY)
            self._told.well()
        except TargetRefused as refusal:
            if refusal.status == TOO_LARGE and count > 1:
                self._limit_bytes = len(body) // 2
                return True
            if not refuses_body(refusal):
                raise
            self._told.trouble(f"dropped, as they are refused for good: {refusal}", same=refusal.code)
        del self._waiting[:count]
        return True


def fitting(parts: Sequence[bytes], limit_bytes: int) -> int:
    """How many of the first parts make a JSON list of at most `limit_bytes`; one where even that is larger."""
    sizes = accumulate((len(part) + 1 for part in parts), initial=1)
    return max(1, sum(1 for _ in takewhile(lambda size: size <= limit_bytes, sizes)) - 1)
