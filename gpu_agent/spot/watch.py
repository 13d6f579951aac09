"""Watches one source of notices, and tells of the first of each."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import msgspec

from gpu_agent.events import Reporter
from gpu_agent.spot.sources import METADATA_URL, Ask, Notice, NotKnown, source_of
from wire.files import read_bounded, write_private
from wire.messages import UNREADABLE

log = logging.getLogger("headworks.agent.spot")
# AWS gives two minutes and Google half a one.
_INTERVAL_SECONDS = 2.0
_FILE_BYTES = 4096


class SpotWatch:
    """`setting`: see `source_of`. `leaving`: a notice holds.

    `file` keeps the one that was told, so that an agent which starts again tells of its end, too.
    """

    def __init__(self, setting: str, node: str, reporter: Reporter, file: Path, *, url: str = METADATA_URL) -> None:
        self._setting, self._node, self._reporter, self._file, self._url = setting, node, reporter, file, url
        self._notice = self._kept()
        self._failure = ""
        self._ended = False

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
            await self._keep(notice)
        elif notice is None and before is not None:
            detail = f"this machine stays after all: {self._setting} no longer says that it will be taken away"
            self._reporter.report("spot_notice_ended", self._node, "info", detail)
            self._ended = True
            await self._keep(None)

    def _id(self, notice: Notice) -> str | None:
        """The same for the same notice, which an agent that starts again finds once more.

        None, another each time: it has no time, or is back after its end was told.
        """
        if notice.at is None or self._ended:
            return None
        return hashlib.sha256(f"{self._node} {notice.what} {notice.at.isoformat()}".encode()).hexdigest()[:32]

    async def _keep(self, notice: Notice | None) -> None:
        try:
            await asyncio.to_thread(write_private, self._file, msgspec.json.encode(notice))
        except OSError as error:
            log.warning("what was told of this machine's end is not kept on disk: %s", error.strerror)

    def _kept(self) -> Notice | None:
        try:
            return msgspec.json.decode(read_bounded(self._file, _FILE_BYTES), type=Notice | None)
        except (OSError, ValueError, *UNREADABLE):
            return None


def _left(notice: Notice, now: datetime) -> str:
    if notice.at is None:
        return ""
    left_seconds = max(0, int((notice.at - now).total_seconds()))
    return f" in {left_seconds} s, at {notice.at:%Y-%m-%d %H:%M:%S} UTC"
