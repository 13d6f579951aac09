"""A target's side of config distribution: enrol, follow the stream, apply, keep the last known good, acknowledge.

A gateway or agent runs one `TargetClient`. With the control plane away it goes on with what it has, restarts
included.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec

from wire import PROTOCOL
from wire.control_api import HEADERS, TargetUnavailable, authorization, call, failure_of
from wire.control_api import TargetRefused as TargetRefused
from wire.credentials import Credentials as Credentials
from wire.credentials import credentials_of, store_credentials
from wire.credentials import load_credentials as load_credentials
from wire.files import write_private
from wire.messages import (
    MAX_PROBLEMS,
    UNREADABLE,
    Ack,
    EnrolAnswer,
    EnrolRequest,
    LastKnownGood,
    PatchEvent,
    PeersEvent,
    SnapshotEvent,
    TargetKind,
    decode_sse,
)
from wire.problems import Problem
from wire.slices import Unverified, keep_slice, kept_slice, next_slice, set_aside
from wire.snapshot import Snapshot, SnapshotRefused, decode_snapshot
from wire.sse import EventTooLarge, ServerSentEvent, SseParser

log = logging.getLogger("headworks.target")


@dataclass(frozen=True)
class Pace:
    """How patient a target is. Retries wait a random time up to a doubling bound (full jitter), so that a restarted
    control plane is not met by all its targets at once."""

    retry_base_seconds: float = 0.2
    retry_cap_seconds: float = 3.0
    refused_cap_seconds: float = 30.0
    connect_seconds: float = 5.0
    # Three pings missed.
    silence_seconds: float = 30.0
    event_limit_bytes: int = 64 * 2**20

    def delay_seconds(self, attempt: int, cap_seconds: float) -> float:
        bound = min(cap_seconds, self.retry_base_seconds * 2 ** min(attempt, 30))
        return random.uniform(0, bound)  # noqa: S311 - spreads load, guards nothing


async def enrol(
    *, control_url: str, join_token: str, kind: TargetKind, name: str, version: str, state_dir: Path
) -> None:
    """Trade a single-use join token for credentials and store them in `state_dir`.

    Raises: TargetRefused, aiohttp.ClientError, or OSError if the credentials cannot be stored.
    """
    # The join token works once: find out first whether its answer can be kept.
    probe = state_dir / "enrolling"
    write_private(probe, b"")
    probe.unlink()
    request = EnrolRequest(join_token, kind, name, version, PROTOCOL)
    url = f"{control_url.rstrip('/')}/api/v1/targets/enrol"
    async with aiohttp.ClientSession() as session:
        answer = _enrol_answer(await call(session, "POST", url, body=msgspec.json.encode(request)))
    store_credentials(state_dir, credentials_of(name, answer, int(time.time() * 1000)))


def _enrol_answer(body: bytes) -> EnrolAnswer:
    try:
        return msgspec.json.decode(body, type=EnrolAnswer)
    except UNREADABLE:
        raise TargetUnavailable("answered with something that holds no token and expiry") from None


class TargetClient:
    """Follows the config stream of one enrolled target.

    `on_snapshot(slice, revision)` makes a slice the running one; raising SnapshotRefused leaves the last good one
    running and tells the control plane why. `on_peers(live_gateways)` hears of other gateways.
    """

    def __init__(
        self,
        *,
        control_url: str,
        state_dir: Path,
        on_snapshot: Callable[[Snapshot, int], None],
        on_peers: Callable[[int], None] | None = None,
        clock: Callable[[], float] = time.time,
        pace: Pace | None = None,
    ) -> None:
        self._control_url = control_url.rstrip("/")
        self._state_dir = state_dir
        self._on_snapshot = on_snapshot
        self._on_peers = on_peers
        self._clock = clock
        self._pace = pace or Pace()
        self._session: aiohttp.ClientSession | None = None
        self._credentials: Credentials | None = None
        # What patches build upon. After a NACK it is newer than `_applied`.
        self._received: LastKnownGood | None = None
        self._applied: LastKnownGood | None = None
        self._ack: Ack | None = None
        self._ack_queued = asyncio.Event()
        self._attempt = 0
        self._stream_error: str | None = None
        self._slice_error: str | None = None
        self.connected = False
        self.persist_errors = 0

    @property
    def revision(self) -> int:
        """The applied revision; 0 before the first."""
        return self._applied.revision if self._applied else 0

    @property
    def last_error(self) -> str | None:
        """What is wrong now, with the stream or with the newest slice; None if nothing is."""
        return self._stream_error or self._slice_error

    def load_last_known_good(self) -> bool:
        """Apply the slice kept on disk. A damaged or unusable file is moved aside, and False returned."""
        try:
            kept = kept_slice(self._state_dir, self._pace.event_limit_bytes)
            if kept is None:
                return False
            if problems := self._apply(kept):
                raise SnapshotRefused(problems)
        except (Unverified, SnapshotRefused) as error:
            self._note_slice(f"the last known good slice is not usable and was set aside: {error}")
            with contextlib.suppress(OSError):
                set_aside(self._state_dir)
            return False
        except OSError as error:
            self._note_slice(f"the last known good slice cannot be read: {error.strerror}")
            return False
        self._received = kept
        self._queue_ack(self._ack_of(kept))
        log.info("running on the last known good revision %d", kept.revision)
        return True

    async def run(self) -> None:
        """Follow the stream, post acks and rotate the token until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow())
                tasks.create_task(self._post_acks())
                tasks.create_task(self._keep_token_fresh())
        finally:
            await self.close()

    async def close(self) -> None:
        """Close connections; needed after `get` or `post` outside `run`."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, path: str) -> bytes:
        """`GET control_url + path` with the target's token. Raises: TargetRefused or aiohttp.ClientError."""
        return await call(self._http(), "GET", self._control_url + path, token=self._token())

    async def post(self, path: str, body: object) -> bytes:
        """`POST control_url + path` with a message as JSON. Raises: TargetRefused or aiohttp.ClientError."""
        encoded = msgspec.json.encode(body)
        return await call(self._http(), "POST", self._control_url + path, token=self._token(), body=encoded)

    # The stream: connect → read → verify → apply → persist → ack.

    async def _follow(self) -> None:
        while True:
            cap_seconds = self._pace.retry_cap_seconds
            opened = time.monotonic()
            try:
                await self._read_stream()
                self._note_stream("the control plane closed the stream")
            except TargetRefused as error:
                cap_seconds = self._pace.refused_cap_seconds
                # Someone may have enrolled this target anew, and with it replaced the file.
                self._credentials = None
                self._note_stream(f"refused by the control plane: {error}")
            except Unverified as error:
                self._received = None
                self._note_stream(f"asking for the whole slice: {error}")
            except TimeoutError:
                self._note_stream("the control plane is silent")
            except (aiohttp.ClientError, EventTooLarge, OSError) as error:
                self._note_stream(f"no config stream: {error or type(error).__name__}")
            # A stream that only carried pings for a while was a good one, too.
            if self.connected and time.monotonic() - opened > self._pace.retry_cap_seconds:
                self._attempt = 0
            self.connected = False
            await asyncio.sleep(self._pace.delay_seconds(self._attempt, cap_seconds))
            self._attempt += 1

    async def _read_stream(self) -> None:
        have = self._received.revision if self._received else 0
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self._pace.connect_seconds, sock_read=self._pace.silence_seconds
        )
        headers = {**HEADERS, **authorization(self._token()), "Accept": "text/event-stream"}
        url = f"{self._control_url}/api/v1/config/stream?have={have}"
        async with self._http().get(url, headers=headers, timeout=timeout, allow_redirects=False) as response:
            if response.status != 200:
                raise await failure_of(response)
            if response.content_type != "text/event-stream":
                raise TargetUnavailable(f"answered {response.content_type}, not text/event-stream")
            self.connected = True
            self._stream_error = None
            parser = SseParser(self._pace.event_limit_bytes)
            async for chunk in response.content.iter_any():
                for event in parser.feed(chunk):
                    await self._take(event)

    async def _take(self, event: ServerSentEvent) -> None:
        try:
            message = decode_sse(event.name, event.data)
            received = next_slice(self._received, message) if isinstance(message, SnapshotEvent | PatchEvent) else None
        except UNREADABLE as error:
            raise Unverified(f"a {event.name[:20]!r} event cannot be read: {error}") from error
        if received is not None:
            self._received = received
            self._attempt = 0
            await self._adopt(received)
        elif isinstance(message, PeersEvent) and self._on_peers is not None:
            self._on_peers(message.live_gateways)

    async def _adopt(self, received: LastKnownGood) -> None:
        if problems := self._apply(received):
            self._note_slice(f"revision {received.revision} refused: {SnapshotRefused(problems)}")
            self._queue_ack(Ack(received.revision, error=problems[:MAX_PROBLEMS]))
            return
        ack = self._ack_of(received)
        self._slice_error = None
        log.info("applied revision %d", received.revision)
        try:
            await asyncio.to_thread(keep_slice, self._state_dir, received)
        except OSError as error:
            self.persist_errors += 1
            self._note_slice(f"revision {received.revision} runs but is not kept on disk: {error.strerror}")
        self._queue_ack(ack)

    def _apply(self, kept: LastKnownGood) -> list[Problem]:
        try:
            self._on_snapshot(decode_snapshot(kept.content), kept.revision)
        except SnapshotRefused as error:
            return error.problems
        except Exception as error:
            # A slice must not end the process that serves; the control plane learns of it.
            log.exception("revision %d could not be applied", kept.revision)
            return [Problem("/", "internal", f"the target failed to apply it: {type(error).__name__}")]
        self._applied = kept
        return []

    # Acks.

    def _ack_of(self, kept: LastKnownGood) -> Ack:
        return Ack(kept.revision, hash=kept.hash, applied_at=int(self._clock() * 1000))

    def _queue_ack(self, ack: Ack) -> None:
        self._ack = ack
        self._ack_queued.set()

    async def _post_acks(self) -> None:
        attempt = 0
        while True:
            await self._ack_queued.wait()
            self._ack_queued.clear()
            try:
                await self.post("/api/v1/config/ack", self._ack)
                attempt = 0
            except (TargetRefused, aiohttp.ClientError, OSError) as error:
                if isinstance(error, TargetRefused) and error.status not in (0, 401, 403):
                    log.warning("the ack was refused: %s", error)
                    continue
                slow = isinstance(error, TargetRefused)
                cap = self._pace.refused_cap_seconds if slow else self._pace.retry_cap_seconds
                # A newer ack ends the wait and takes this one's place.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pace.delay_seconds(attempt, cap)):
                        await self._ack_queued.wait()
                attempt += 1
                self._ack_queued.set()

    # The token.

    async def _keep_token_fresh(self) -> None:
        attempt = 0
        while True:
            try:
                credentials = self._enrolled()
                wait_seconds = credentials.rotate_at_ms / 1000 - self._clock()
                if wait_seconds <= 0:
                    await self._rotate(credentials)
                    attempt = 0
                    continue
                # Short sleeps, so that a clock that is set, or a new file, is noticed.
                delay = min(wait_seconds, self._pace.refused_cap_seconds)
            except (TargetRefused, aiohttp.ClientError, OSError) as error:
                log.warning("the token could not be renewed: %s", error)
                delay = self._pace.delay_seconds(attempt, self._pace.refused_cap_seconds)
                attempt += 1
            await asyncio.sleep(delay)

    async def _rotate(self, credentials: Credentials) -> None:
        answer = _enrol_answer(await self.post("/api/v1/targets/rotate", {}))
        fresh = credentials_of(credentials.name, answer, int(self._clock() * 1000))
        # Stored before its first use, which ends the old one.
        await asyncio.to_thread(store_credentials, self._state_dir, fresh)
        self._credentials = fresh
        log.info("the token was renewed")

    def _enrolled(self) -> Credentials:
        if self._credentials is None:
            self._credentials = load_credentials(self._state_dir)
        if self._credentials is None:
            raise TargetRefused("not_enrolled", f"{self._state_dir} holds no credentials; enrol first")
        return self._credentials

    def _token(self) -> str:
        return self._enrolled().token

    def _http(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        return self._session

    # What is wrong is logged once, not at every retry.

    def _note_stream(self, error: str) -> None:
        if error != self._stream_error:
            log.warning("%s", error)
        self._stream_error = error

    def _note_slice(self, error: str) -> None:
        log.warning("%s", error)
        self._slice_error = error
