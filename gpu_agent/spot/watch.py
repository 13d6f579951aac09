"""Watches one source of notices, and tells of the first of each."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from datetime import UTC, datetime

import aiohttp

from gpu_agent.events import Reporter
from gpu_agent.spot.sources import METADATA_URL, Ask, Notice, NotKnown, source_of

log = logging.getLogger("headworks.agent.spot")
# AWS gives two minutes and Google half a one.
_INTERVAL_SECONDS = 2.0


class SpotWatch:
    """`setting`: see `source_of`. `leaving`: a notice holds."""

    def __init__(self, setting: str, node: str, reporter: Reporter, *, url: str = METADATA_URL) -> None:
        self._setting, self._node, self._reporter, self._url = setting, node, reporter, url
        self._notice: Notice | None = None
        self._failure = ""

    @property
    def leaving(self) -> bool:
        return self._notice is not None

    async def run(self) -> None:
        """Until cancelled."""
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            ask = source_of(self._setting, session, self._url)
            while True:
                await self.look(ask)
                await asyncio.sleep(_INTERVAL_SECONDS)

    async def look(self, ask: Ask, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Ask once. While nobody answers, what was told last holds."""
        try:
            notice = await ask()
        except NotKnown as error:
            if str(error) != self._failure:
                log.warning("whether this machine will be taken away is not known: %s", error)
            self._failure = str(error)
            return
        self._failure = ""
        before, self._notice = self._notice, notice
        if notice is not None and notice != before:
            detail = f"this machine will be taken away{_left(notice, now())}: {notice.what}"
            self._reporter.report("spot_notice", self._node, "critical", detail, event_id=self._id(notice))
        elif notice is None and before is not None:
            detail = f"this machine stays after all: {self._setting} no longer says that it will be taken away"
            self._reporter.report("spot_notice_ended", self._node, "info", detail)

    def _id(self, notice: Notice) -> str | None:
        """The same for the same notice, which an agent that starts again finds once more. None: it has no time."""
        if notice.at is None:
            return None
        return hashlib.sha256(f"{self._node} {notice.what} {notice.at.isoformat()}".encode()).hexdigest()[:32]


def _left(notice: Notice, now: datetime) -> str:
    if notice.at is None:
        return ""
    left_seconds = max(0, int((notice.at - now).total_seconds()))
    return f" in {left_seconds} s, at {notice.at:%Y-%m-%d %H:%M:%S} UTC"
