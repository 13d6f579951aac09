"""The HTTP client by which a gateway asks its engines."""

from __future__ import annotations

import aiohttp

from gateway import settings


def engine_session() -> aiohttp.ClientSession:
    """Asks engines and nobody else. Make it inside an event loop, and close it."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=settings.UPSTREAM_KEEP_ALIVE_SECONDS.read()),
        timeout=aiohttp.ClientTimeout(total=None, connect=settings.CONNECT_TIMEOUT_SECONDS.read()),
        # An engine's cookies are nobody's here.
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
    )
