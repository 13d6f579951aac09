"""The external metrics server: one call over HTTP, bounded in time and size."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from controlplane import settings_rows as rows

_ANSWER_MAX_BYTES = 64 << 20


class UpstreamAway(RuntimeError):
    """The server cannot be reached, or did not answer in time or within bounds."""


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


def call(method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
    """Raises UpstreamAway."""
    parts = urlsplit(url)
    timeout = rows.METRICS_UPSTREAM_SECONDS.read()
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(parts.netloc, timeout=timeout, context=context)
    else:
        connection = http.client.HTTPConnection(parts.netloc, timeout=timeout)
    try:
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request(method, path or "/", body, dict(headers))
        response = connection.getresponse()
        text = response.read(_ANSWER_MAX_BYTES + 1)
    except (OSError, http.client.HTTPException) as error:
        raise UpstreamAway(f"the metrics server {parts.netloc} does not answer: {error}") from error
    finally:
        connection.close()
    if len(text) > _ANSWER_MAX_BYTES:
        raise UpstreamAway(f"the metrics server {parts.netloc} answered with more than {_ANSWER_MAX_BYTES} bytes")
    return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, text)
