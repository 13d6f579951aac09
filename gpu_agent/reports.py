"""Reports of this node's state: on change, and at the latest once an interval."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

import aiohttp

from wire.messages import NodeReport
from wire.target import TargetClient, TargetRefused

log = logging.getLogger("headworks.agent")


class Reports:
    """Posts what `current` gives. `changed` is set when that may be worth a report before the next one is due.

    `on_taken` is called with each report that the control plane has taken. A report that fails is tried again after
    `retry_seconds`.
    """

    def __init__(
        self,
        client: TargetClient,
        current: Callable[[], NodeReport],
        changed: asyncio.Event,
        on_taken: Callable[[NodeReport], None],
        *,
        interval_seconds: float,
        retry_seconds: float,
    ) -> None:
        self._client, self._current, self._changed, self._on_taken = client, current, changed, on_taken
        self._interval_seconds, self._retry_seconds = interval_seconds, retry_seconds

    async def run(self) -> None:
        """Until cancelled."""
        clock = asyncio.get_running_loop().time
        taken: NodeReport | None = None
        failure: str | None = None
        due_seconds = clock()
        while True:
            self._changed.clear()
            report = self._current()
            if report != taken or clock() >= due_seconds:
                try:
                    await self._client.post("/api/v1/nodes/report", report)
                except (TargetRefused, aiohttp.ClientError, OSError) as error:
                    if failure is None:
                        log.warning("reports do not arrive: %s", error)
                    failure = str(error)
                else:
                    if failure is not None:
                        log.info("reports arrive again")
                    failure, taken = None, report
                    self._on_taken(report)
                    due_seconds = clock() + self._interval_seconds
            # A failed report is due at once, but is not tried as often as something changes.
            wait_seconds = self._retry_seconds if failure is not None else due_seconds - clock()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0, wait_seconds)):
                    await self._changed.wait()
