"""A target's side of config distribution: enrol, follow the stream, apply, keep the last known good, acknowledge.

A gateway or agent runs one `TargetClient`. With the control plane away it goes on with what it has, restarts
included.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from wire.control_api import HEADERS, JSON_BODY, TargetUnavailable, authorization, call, failure_of
from wire.control_api import TargetRefused as TargetRefused
from wire.credentials import Credentials as Credentials
from wire.credentials import credentials_of, enrol_answer, store_credentials
from wire.credentials import enrol as enrol
from wire.credentials import load_credentials as load_credentials
from wire.messages import (
    MAX_PROBLEMS,
    UNREADABLE,
    Ack,
    LastKnownGood,
    PatchEvent,
    PeersEvent,
    SnapshotEvent,
    decode_sse,
)
from wire.pace import Pace as Pace
from wire.problems import Problem
from wire.slices import Unverified, keep_slice, kept_slice, next_slice, set_aside
from wire.snapshot import Snapshot
from wire.snapshot_checks import SnapshotNotTaken, SnapshotRefused, decode_snapshot
from wire.sse import EventTooLarge, ServerSentEvent, SseParser

log = logging.getLogger("headworks.target")
# Refusals of an ack that say: this is not what you were sent.
_DISOWNED = ("wrong_hash", "unknown_revision")
# A clock that takes a new token for an old one shall not have it renewed again and again.
_CLOCK_WRONG_SECONDS = 3600.0
Reenrol = Callable[[Credentials], Awaitable[str | None]]


class TargetClient:
    """Follows the config stream of one enrolled target.

    `on_snapshot(slice, revision)` makes a slice the running one; raising SnapshotRefused leaves the last good one
    running and tells the control plane why; after SnapshotNotTaken whoever raised it has it tried again, by
    `adopt_again`. `on_peers(live_gateways)` hears of other gateways. `enrol_again(refused)` is called when the stored
    token is refused: None once a new one is stored, else what a person has to do.
    """

    def __init__(
        self,
        *,
        control_url: str,
        state_dir: Path,
        on_snapshot: Callable[[Snapshot, int], None],
        on_peers: Callable[[int], Awaitable[None]] | None = None,
        enrol_again: Reenrol | None = None,
        clock: Callable[[], float] = time.time,
        pace: Pace | None = None,
    ) -> None:
        self._control_url = control_url.rstrip("/")
        self._state_dir = state_dir
        self._on_snapshot = on_snapshot
        self._on_peers = on_peers
        self._enrol_again = enrol_again
        self._clock = clock
        self._pace = pace or Pace()
        self._session: aiohttp.ClientSession | None = None
        self._credentials: Credentials | None = None
        # What the newest stream was opened with; a token that was renewed since was not refused with it.
        self._streamed_with: Credentials | None = None
        # A token that is renewed must not overwrite one that was enrolled meanwhile.
        self._token_changes = asyncio.Lock()
        # What patches build upon. After a NACK it is newer than `_applied`.
        self._received: LastKnownGood | None = None
        self._applied: LastKnownGood | None = None
        # The older of two slices must not be kept on disk after the newer one.
        self._adopting = asyncio.Lock()
        # Refused as what nobody was sent; asked for anew once, as a control plane that is wrong would refuse it again.
        self._disowned: tuple[int, str] | None = None
        self._stream: aiohttp.ClientResponse | None = None
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
            applied = self._apply(kept)
        except SnapshotNotTaken as error:
            self._received = kept
            self._note_slice(f"the last known good revision could not be taken yet: {error}")
            return False
        except (Unverified, SnapshotRefused) as error:
            self._note_slice(f"the last known good slice is not usable and was set aside: {error}")
            with contextlib.suppress(OSError):
                set_aside(self._state_dir)
            return False
        except OSError as error:
            self._note_slice(f"the last known good slice cannot be read: {error.strerror}")
            return False
        self._received = kept
        self._queue_ack(self._ack_of(applied))
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

    async def adopt_again(self) -> None:
        """Try the newest slice again, if it is not the one that runs, and tell the control plane."""
        received, applied = self._received, self._applied
        if received is None:
            return
        if applied is None or (received.revision, received.hash) != (applied.revision, applied.hash):
            await self._adopt(received)

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
        return await self.post_bytes(path, msgspec.json.encode(body), JSON_BODY)

    async def post_bytes(self, path: str, body: bytes, body_headers: Mapping[str, str]) -> bytes:
        """As `post`, with a body that is encoded already; `body_headers` say as what."""
        url = self._control_url + path
        return await call(self._http(), "POST", url, token=self._token(), body=body, body_headers=body_headers)

    def request(
        self, method: str, path: str, headers: Mapping[str, str], data: Any, timeout: aiohttp.ClientTimeout
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """A call whose body, or answer, is too long to be held. Whoever makes it judges the status.

        Raises: TargetRefused where there is no token, an aiohttp.ClientError inside the context.
        """
        own = {**HEADERS, **authorization(self._token()), **headers}
        url = self._control_url + path
        return self._http().request(method, url, headers=own, data=data, timeout=timeout, allow_redirects=False)

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
                await self._after_refusal(error)
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
        have = f"have={self._received.revision}&hash={self._received.hash}" if self._received else "have=0"
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self._pace.connect_seconds, sock_read=self._pace.silence_seconds
        )
        self._streamed_with = self._enrolled()
        headers = {**HEADERS, **authorization(self._streamed_with.token), "Accept": "text/event-stream"}
        url = f"{self._control_url}/api/v1/config/stream?{have}"
        async with self._http().get(url, headers=headers, timeout=timeout, allow_redirects=False) as response:
            if response.status != 200:
                raise await failure_of(response)
            if response.content_type != "text/event-stream":
                raise TargetUnavailable(f"answered {response.content_type}, not text/event-stream")
            self.connected, self._stream = True, response
            if self._stream_error is not None:
                log.info("the config stream is back")
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
            await self._on_peers(message.live_gateways)

    async def _adopt(self, received: LastKnownGood) -> None:
        async with self._adopting:
            if received is self._received:
                await self._adopt_newest(received)

    async def _adopt_newest(self, received: LastKnownGood) -> None:
        try:
            applied = self._apply(received)
        except SnapshotRefused as refusal:
            self._note_slice(f"revision {received.revision} refused: {refusal}")
            self._queue_ack(Ack(received.revision, error=refusal.problems[:MAX_PROBLEMS]))
            return
        self._slice_error = None
        log.info("applied revision %d", received.revision)
        try:
            await asyncio.to_thread(keep_slice, self._state_dir, applied)
        except OSError as error:
            self.persist_errors += 1
            self._note_slice(f"revision {received.revision} runs but is not kept on disk: {error.strerror}")
        self._queue_ack(self._ack_of(applied))

    def _apply(self, kept: LastKnownGood) -> LastKnownGood:
        """Make a slice the running one; the same with the time of that. Raises: SnapshotRefused."""
        try:
            self._on_snapshot(decode_snapshot(kept.content), kept.revision)
        except SnapshotRefused:
            raise
        except Exception as error:
            # A slice must not end the process that serves; the control plane learns of it.
            log.exception("revision %d could not be applied", kept.revision)
            problem = Problem("/", "internal", f"the target failed to apply it: {type(error).__name__}")
            raise SnapshotRefused([problem]) from error
        self._applied = self._timed(kept)
        return self._applied

    # Acks.

    def _timed(self, kept: LastKnownGood) -> LastKnownGood:
        """With the time at which this revision was first applied here: now, where none is known."""
        running = self._applied
        if running is not None and (running.revision, running.hash) == (kept.revision, kept.hash):
            return msgspec.structs.replace(kept, applied_at=running.applied_at)
        return msgspec.structs.replace(kept, applied_at=kept.applied_at or int(self._clock() * 1000))

    def _ack_of(self, kept: LastKnownGood) -> Ack:
        return Ack(kept.revision, hash=kept.hash, applied_at=kept.applied_at)

    def _queue_ack(self, ack: Ack) -> None:
        self._ack = ack
        self._ack_queued.set()

    async def _post_acks(self) -> None:
        attempt = 0
        while True:
            await self._ack_queued.wait()
            self._ack_queued.clear()
            ack = self._ack
            try:
                await self.post("/api/v1/config/ack", ack)
                attempt = 0
            except (TargetRefused, aiohttp.ClientError, OSError) as error:
                if isinstance(error, TargetRefused) and error.status not in (0, 401, 403):
                    log.warning("the ack was refused: %s", error)
                    if ack is not None and error.code in _DISOWNED:
                        self._ask_anew(ack.revision)
                    continue
                slow = isinstance(error, TargetRefused)
                cap = self._pace.refused_cap_seconds if slow else self._pace.retry_cap_seconds
                # A newer ack ends the wait and takes this one's place.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pace.delay_seconds(attempt, cap)):
                        await self._ack_queued.wait()
                attempt += 1
                self._ack_queued.set()

    def _ask_anew(self, revision: int) -> None:
        """The control plane knows another slice by this number, or none: its database was restored from a backup."""
        received = self._received
        if received is None or received.revision != revision or self._disowned == (revision, received.hash):
            return
        self._disowned, self._received = (revision, received.hash), None
        if self._stream is not None:
            self._stream.close()

    # The token.

    async def _keep_token_fresh(self) -> None:
        attempt = 0
        while True:
            try:
                # Short sleeps, so that a clock that is set, or a new file, is noticed.
                delay = min(self._renewal_seconds(), self._pace.refused_cap_seconds)
                if delay <= 0:
                    async with self._token_changes:
                        await self._rotate()
                    attempt = 0
                    if self._renewal_seconds() > 0:
                        continue
                    log.warning("a new token is past its time already: set the clock of this machine")
                    delay = _CLOCK_WRONG_SECONDS
            except (TargetRefused, aiohttp.ClientError, OSError) as error:
                log.warning("the token could not be renewed: %s", error)
                delay = self._pace.delay_seconds(attempt, self._pace.refused_cap_seconds)
                attempt += 1
            await asyncio.sleep(delay)

    def _renewal_seconds(self) -> float:
        """Until the token is to be renewed: at once where a clock that was ahead chose a time after its end."""
        credentials = self._enrolled()
        if credentials.rotate_at_ms >= credentials.expires_at_ms:
            return 0.0
        return credentials.rotate_at_ms / 1000 - self._clock()

    async def _rotate(self) -> None:
        old = self._enrolled()
        answer = enrol_answer(await self.post("/api/v1/targets/rotate", {}))
        fresh = credentials_of(old.name, answer, int(self._clock() * 1000), old.join_token_sha256)
        # Stored before its first use, which ends the old one.
        await asyncio.to_thread(store_credentials, self._state_dir, fresh)
        self._credentials = fresh
        log.info("the token was renewed")

    async def _after_refusal(self, refusal: TargetRefused) -> None:
        said = f"refused by the control plane: {refusal}"
        async with self._token_changes:
            refused, self._credentials = self._streamed_with, None
            # Someone may have enrolled this target anew, and with it replaced the file: then that token is tried first.
            if self._enrol_again and refused and refusal.of_token and self._still_stored(refused):
                hindrance = await self._enrol_again(refused)
                if hindrance is None:
                    self._credentials = None
                    self._attempt = 0
                    # Acks that were refused wait for long.
                    if self._ack is not None:
                        self._ack_queued.set()
                    return
                said = f"{said}; {hindrance}"
        self._note_stream(said)

    def _still_stored(self, refused: Credentials) -> bool:
        try:
            return self._enrolled().token == refused.token
        except (TargetRefused, OSError):
            return False

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
