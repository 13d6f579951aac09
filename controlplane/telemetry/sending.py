"""Sending what waits to the external server: oldest first, several bodies at once, with patience while it is away."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path

from cramjam import DecompressionError, snappy

from controlplane.telemetry.metrics import LOST_BODIES
from controlplane.telemetry.outgoing import Outgoing
from controlplane.telemetry.store.database import StoreUnavailable
from controlplane.telemetry.store.packing import only_one
from controlplane.telemetry.upstream import Answer, UpstreamAway, call
from wire.pace import Pace
from wire.write_body import CONTENT_ENCODING, CONTENT_TYPE, VERSION, VERSION_HEADER, encode, halves

log = logging.getLogger(__name__)

_HEADERS = {"Content-Type": CONTENT_TYPE, "Content-Encoding": CONTENT_ENCODING, VERSION_HEADER: VERSION}
# Packed. Snappy packs protobuf ten times or more; servers take some 32 MB of it unpacked.
_BATCH_BYTES = 1 << 20
_SHOWN_CHARACTERS = 500
_RETRY_AFTER_MAX_SECONDS = 60
# Another process sends what waits; it may end before all is sent.
_ANOTHER_SENDS_SECONDS = 0.2
_BODY_REFUSED = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)


class NotNow(RuntimeError):
    """The server takes nothing now: all is kept."""

    def __init__(self, message: str, retry_after_seconds: int = 0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class BodyRefused(RuntimeError):
    """The server will never take this."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"{answer.status} {_said(answer)}")
        self.too_large = answer.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class Sender:
    """A thread that runs while something waits. Of all processes with the same file, one sends at a time."""

    def __init__(self, path: Path, outgoing: Outgoing, pace: Pace | None = None) -> None:
        self.outgoing = outgoing
        self._path, self._pace = path, pace or Pace()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._url = ""
        self._trouble = False

    def wake(self, url: str) -> None:
        """Something waits for the server at `url`."""
        with self._lock:
            self._url = url
            running = self._thread is not None and self._thread.is_alive()
            if not running and not self._stopping.is_set():
                self._thread = threading.Thread(target=self._run, name="remote-write-sender", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """End the thread; what waits stays on disk."""
        self._stopping.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()
        self.outgoing.close()

    def _run(self) -> None:
        attempt = 0
        while not self._stopping.is_set():
            delay_seconds = 0.0
            try:
                if self._finished():
                    return
                with only_one(self._path) as alone:
                    if alone:
                        self._send_oldest()
                    else:
                        delay_seconds = _ANOTHER_SENDS_SECONDS
                attempt = 0
            except (NotNow, StoreUnavailable, OSError) as error:
                self._note_trouble(error)
                asked_seconds = error.retry_after_seconds if isinstance(error, NotNow) else 0
                delay_seconds = asked_seconds + self._pace.delay_seconds(attempt, self._pace.retry_cap_seconds)
                attempt += 1
            self._stopping.wait(delay_seconds)

    def _finished(self) -> bool:
        # Under the lock: who puts something in after this look finds no thread, and starts one.
        with self._lock:
            if self.outgoing.waits():
                return False
            self._thread = None
            return True

    def _send_oldest(self) -> None:
        """Raises NotNow, StoreUnavailable."""
        batch = self.outgoing.oldest(_BATCH_BYTES)
        if not batch:
            return
        try:
            post_checked(self._url, joined([body for _, body in batch]))
        except (BodyRefused, DecompressionError):
            # One of them is meant, or damaged on the disk; the others shall not go with it.
            for number, body in batch:
                self._send_one(body)
                self.outgoing.remove(number)
        else:
            self.outgoing.remove(batch[-1][0])
        self._note_well()

    def _send_one(self, body: bytes) -> None:
        """Returns once the body is done with: taken, or refused for good. Raises NotNow."""
        try:
            post(self._url, body)
        except BodyRefused as refused:
            parts = halves(body) if refused.too_large else None
            if parts is not None:
                for part in parts:
                    self._send_one(part)
                return
            LOST_BODIES.inc()
            log.error("samples of one body are lost: the metrics server refused them for good: %s", refused)

    def _note_trouble(self, error: Exception) -> None:
        """Once a change, not every try."""
        if not self._trouble:
            self._trouble = True
            log.error("samples wait in %s: %s", self._path, error)

    def _note_well(self) -> None:
        if self._trouble:
            self._trouble = False
            log.warning("the metrics server takes samples again")


def joined(bodies: Sequence[bytes]) -> bytes:
    """Several writes as one: messages of one type, one after the other, are one with the series of all."""
    if len(bodies) == 1:
        return bodies[0]
    return bytes(snappy.compress_raw(b"".join(bytes(snappy.decompress_raw(body)) for body in bodies)))


def post(url: str, body: bytes) -> None:
    """Returns once the server has taken a write. Raises BodyRefused, NotNow."""
    try:
        answer = call("POST", url, body, _HEADERS)
    except UpstreamAway as error:
        raise NotNow(str(error)) from error
    if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
        return
    if answer.status in _BODY_REFUSED:
        raise BodyRefused(answer)
    # 429 and 5xx pass by; a wrong address or missing right is ours to repair, and the samples are kept meanwhile.
    text = answer.headers.get("retry-after", "")
    seconds = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0
    message = f"the metrics server answered a write with {answer.status}: {_said(answer)}"
    raise NotNow(message, min(seconds, _RETRY_AFTER_MAX_SECONDS))


def post_checked(url: str, body: bytes) -> None:
    """As `post`; but a wrong address, which answers every body with 400, refuses none. Raises BodyRefused, NotNow."""
    try:
        post(url, body)
    except BodyRefused as refused:
        _require_receiver(url, refused)
        raise


def _require_receiver(url: str, refused: BodyRefused) -> None:
    """Raises NotNow where an empty write is refused too."""
    try:
        post(url, encode([]))
    except BodyRefused:
        raise NotNow(f"the metrics server takes no remote write at {url}: {refused}") from refused


def _said(answer: Answer) -> str:
    return answer.body[:_SHOWN_CHARACTERS].decode(errors="replace").strip()
