"""One attempt at a webhook over HTTP: bounded in time, no redirects, and only to addresses that may be reached."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import aiohttp

from controlplane import settings_rows as rows
from controlplane.alerts.addresses import address_refusal
from controlplane.alerts.delivery_plan import Outcome, Reason, judge


class AddressRefused(Exception):
    """The address that was about to be connected to may not be. No OSError, after which the next one is tried."""


def post(url: str, body: bytes, headers: Mapping[str, str]) -> Outcome:
    """Send it once; how that ended. Takes HEADWORKS_WEBHOOK_TIMEOUT_SECONDS at most, from the look-up of the name on.

    Call it outside transactions. What the receiver says beyond its status and Retry-After is not read.
    """
    loop = asyncio.new_event_loop()
    try:
        sending = _post(url, body, {"Content-Type": "application/json", "User-Agent": "headworks", **headers})
        return loop.run_until_complete(sending)
    finally:
        # `asyncio.run` would wait for the thread that looks up a name, however long its name server is silent.
        loop.close()


async def _post(url: str, body: bytes, headers: Mapping[str, str]) -> Outcome:
    limit_seconds = rows.WEBHOOK_TIMEOUT_SECONDS.read()
    try:
        async with (
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(socket_factory=_guarded_socket, force_close=True, use_dns_cache=False),
                timeout=aiohttp.ClientTimeout(total=limit_seconds),
                cookie_jar=aiohttp.DummyCookieJar(),
            ) as session,
            session.post(url, data=body, headers=headers, allow_redirects=False) as answer,
        ):
            return judge(answer.status, answer.headers.get("Retry-After"), datetime.now(UTC))
    except AddressRefused as error:
        return Outcome(Reason.ADDRESS_REFUSED, str(error))
    except TimeoutError:
        return Outcome(Reason.TIMED_OUT, f"no answer within {limit_seconds} s")
    except aiohttp.ClientSSLError as error:
        return Outcome(Reason.TLS, str(error))
    except (aiohttp.ClientError, OSError) as error:
        return Outcome(Reason.UNREACHABLE, str(error) or type(error).__name__)


def _guarded_socket(info: tuple[int, int, int, str, tuple[Any, ...]]) -> socket.socket:
    """The socket for one resolved or literal address. It is judged here, where no other can take its place any more."""
    family, kind, protocol, _, place = info
    if refusal := address_refusal(str(place[0]), rows.WEBHOOK_ALLOWED_NETWORKS.read()):
        raise AddressRefused(refusal)
    return socket.socket(family, kind, protocol)
