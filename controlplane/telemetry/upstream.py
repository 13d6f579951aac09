"""The external metrics server: one call over HTTP, bounded in time and size."""

from __future__ import annotations

import http.client
import math
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple
from urllib.parse import urlsplit

from controlplane.telemetry import settings_rows as rows

_ANSWER_MAX_BYTES = 64 << 20


class UpstreamAway(RuntimeError):
    """The server cannot be reached, or did not answer in time or within bounds."""


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


def call(
    method: str, url: str, body: bytes | None, headers: Mapping[str, str], *, seconds_max: float = math.inf
) -> Answer:
    """One request and its whole answer, within HEADWORKS_METRICS_UPSTREAM_SECONDS, or less where that is given.

    Raises UpstreamAway.
    """
    parts = urlsplit(url)
    seconds = min(rows.METRICS_UPSTREAM_SECONDS.read(), seconds_max)
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(parts.netloc, timeout=seconds, context=context)
    else:
        connection = http.client.HTTPConnection(parts.netloc, timeout=seconds)
    try:
        connection.connect()
        with _cut_after(seconds, connection.sock) as cut:
            path = parts.path + (f"?{parts.query}" if parts.query else "")
            connection.request(method, path or "/", body, {"User-Agent": "headworks", **headers})
            response = connection.getresponse()
            text = response.read(_ANSWER_MAX_BYTES + 1)
            # Read by size, an answer that ends early looks whole.
            missing = response.length or 0
    except (OSError, http.client.HTTPException) as error:
        raise UpstreamAway(f"the metrics server {parts.netloc} does not answer: {error}") from error
    finally:
        connection.close()
    if cut.is_set():
        raise UpstreamAway(f"the metrics server {parts.netloc} did not answer within {seconds} s")
    if len(text) > _ANSWER_MAX_BYTES:
        raise UpstreamAway(f"the metrics server {parts.netloc} answered with more than {_ANSWER_MAX_BYTES} bytes")
    if missing:
        raise UpstreamAway(f"the metrics server {parts.netloc} ended its answer {missing} bytes early")
    return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, text)


@contextmanager
def _cut_after(seconds: float, connected: socket.socket) -> Iterator[threading.Event]:
    """The connection ends after `seconds`, as the event tells: a socket's own timeout begins anew with each byte."""
    cut = threading.Event()

    def end() -> None:
        cut.set()
        with suppress(OSError):
            # Not as TLS' own method does it, which lets a body that is being sent go on in plain text.
            socket.socket.shutdown(connected, socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield cut
    finally:
        timer.cancel()
