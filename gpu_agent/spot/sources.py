"""Where each cloud says that it will take a spot machine away, and how. Nobody else is asked.

Sources: AWS EC2 user guide, "Spot Instance interruption notices" and "IMDSv2"; Google Compute Engine, "Preemption
process"; Azure, "Scheduled Events for Linux VMs".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar

import aiohttp
import msgspec

from gpu_agent.host.apart import Apart
from wire.files import read_bounded
from wire.messages import UNREADABLE

T = TypeVar("T")
METADATA_URL = "http://169.254.169.254"
_ANSWER_SECONDS = 2.0
_LIMIT_BYTES = 64 << 10
_FILE_BYTES = 1024
_AWS_TOKEN_SECONDS = 21_600


class Notice(NamedTuple):
    """`what` is done, by whom, in words. `at`: when; None where that is not said."""

    what: str
    at: datetime | None = None


class NotKnown(Exception):
    """The source did not answer as it should; the message says how."""


Ask = Callable[[], Awaitable[Notice | None]]


class Metadata:
    """Bounded calls to the cloud's metadata server."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, url

    async def call(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Status and body. Raises: NotKnown."""
        try:
            async with (
                asyncio.timeout(_ANSWER_SECONDS),
                self._session.request(method, self._url + path, headers=headers, allow_redirects=False) as response,
            ):
                body = await response.content.read(_LIMIT_BYTES)
                return response.status, body
        except TimeoutError as error:
            raise NotKnown(f"{path}: no answer within {_ANSWER_SECONDS:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise NotKnown(f"{path}: {error or type(error).__name__}") from error

    async def page(self, path: str, headers: Mapping[str, str]) -> bytes:
        """The body of a good answer. Raises: NotKnown."""
        status, body = await self.call("GET", path, headers)
        if status != 200:
            raise NotKnown(f"{path} answered {status}")
        return body


class _Action(msgspec.Struct):
    action: str
    time: datetime


class Aws:
    """The token is asked for anew when it is no longer taken."""

    _PATH = "/latest/meta-data/spot/instance-action"

    def __init__(self, metadata: Metadata) -> None:
        self._metadata, self._token = metadata, ""

    async def ask(self) -> Notice | None:
        status, body = await self._answer()
        if status == 401:
            self._token = ""
            status, body = await self._answer()
        if status == 404:
            return None
        if status != 200:
            raise NotKnown(f"{self._PATH} answered {status}")
        action = _read(self._PATH, body, _Action)
        return Notice(f"AWS will {action.action} it", action.time.astimezone(UTC))

    async def _answer(self) -> tuple[int, bytes]:
        if not self._token:
            ttl = {"X-aws-ec2-metadata-token-ttl-seconds": str(_AWS_TOKEN_SECONDS)}
            status, token = await self._metadata.call("PUT", "/latest/api/token", ttl)
            if status != 200:
                raise NotKnown(f"/latest/api/token answered {status}")
            self._token = token.decode("ascii", "replace").strip()
        return await self._metadata.call("GET", self._PATH, {"X-aws-ec2-metadata-token": self._token})


class Gcp:
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    async def ask(self) -> Notice | None:
        body = await self._metadata.page("/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"})
        # Half a minute is left then.
        return Notice("Google Cloud preempts it") if body.strip().upper() == b"TRUE" else None


class _Event(msgspec.Struct, rename="pascal"):
    event_type: str
    resources: list[str] = []
    not_before: str = ""


class _Events(msgspec.Struct, rename="pascal"):
    events: list[_Event] = []


class Azure:
    """Events may be of other machines of the same set; this one's name is asked for once."""

    _HEADERS: ClassVar = {"Metadata": "true"}
    _EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
    _NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"

    def __init__(self, metadata: Metadata) -> None:
        self._metadata, self._name = metadata, ""

    async def ask(self) -> Notice | None:
        if not self._name:
            self._name = (await self._metadata.page(self._NAME, self._HEADERS)).decode("utf-8", "replace").strip()
        events = _read(self._EVENTS, await self._metadata.page(self._EVENTS, self._HEADERS), _Events).events
        for event in events:
            if event.event_type in ("Preempt", "Terminate") and self._name in event.resources:
                return Notice(f"Azure will {event.event_type.lower()} it", _http_date(event.not_before))
        return None


class File:
    """A file of the site's own making: that it is there is the notice, and its text the time, if it is one."""

    def __init__(self, path: Path) -> None:
        self._path, self._apart = path, Apart[bytes | None]("spot-notice")

    async def ask(self) -> Notice | None:
        try:
            text = await self._apart.run(self._content, _ANSWER_SECONDS)
        except Exception as error:
            raise NotKnown(f"{self._path}: {error}") from error
        if text is None:
            return None
        return Notice(f"{self._path} says so", _iso_time(text.decode("utf-8", "replace").strip()))

    def _content(self) -> bytes | None:
        try:
            return read_bounded(self._path, _FILE_BYTES)
        except FileNotFoundError:
            return None


def source_of(setting: str, session: aiohttp.ClientSession, url: str = METADATA_URL) -> Ask:
    """`setting`: aws, gcp, azure or file:PATH."""
    if setting.startswith("file:"):
        return File(Path(setting.removeprefix("file:"))).ask
    metadata = Metadata(session, url)
    return {"aws": Aws(metadata).ask, "gcp": Gcp(metadata).ask, "azure": Azure(metadata).ask}[setting]


def _read(path: str, body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except UNREADABLE as error:
        raise NotKnown(f"{path} answered what cannot be read: {error}") from error


def _http_date(text: str) -> datetime | None:
    try:
        return parsedate_to_datetime(text).astimezone(UTC)
    except ValueError:
        return None


def _iso_time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.astimezone(UTC) if found.tzinfo else None
