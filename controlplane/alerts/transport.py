"""One attempt over HTTP: bounded in time and in what is read, no redirects, only to addresses that may be reached."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any

import aiohttp

from controlplane import settings_rows as rows
from controlplane.alerts.addresses import address_refusal
from controlplane.alerts.delivery_plan import LASTING, Outcome, Reason
from controlplane.alerts.receivers.contract import Answer, Request
from controlplane.alerts.receivers.guard import AddressRefused

# Enough for what a service says is wrong; the rest of an answer is not read.
ANSWER_BYTES = 8192
USER_AGENT = "headworks"


def send(requests: Sequence[Request], judge: Callable[[Answer], Outcome]) -> Outcome:
    """Send them once, beside each other; how that ended. Of several, one that is taken is enough, and the text counts.

    Takes HEADWORKS_WEBHOOK_TIMEOUT_SECONDS at most, from the look-up of names on. Call it outside transactions.
    """
    loop = asyncio.new_event_loop()
    try:
        return merged(loop.run_until_complete(_all(requests, judge)))
    finally:
        # `asyncio.run` would wait for the thread that looks up a name, however long its name server is silent.
        loop.close()


def merged(outcomes: Sequence[Outcome]) -> Outcome:
    """One outcome of several: the best, as that is enough; it says what the others were."""
    best = min(outcomes, key=lambda each: (each.reason is not Reason.TAKEN, each.reason in LASTING))
    others = [each for each in outcomes if each.reason is not Reason.TAKEN and each is not best]
    if not others:
        return best
    taken = sum(each.reason is Reason.TAKEN for each in outcomes)
    text = f"{best.text}; {taken} of {len(outcomes)} took it, and {'; '.join(each.error for each in others)}"
    return best._replace(text=text)


async def _all(requests: Sequence[Request], judge: Callable[[Answer], Outcome]) -> list[Outcome]:
    limit_seconds = rows.WEBHOOK_TIMEOUT_SECONDS.read()
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(socket_factory=_guarded_socket, force_close=True, use_dns_cache=False),
        timeout=aiohttp.ClientTimeout(total=limit_seconds),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
    ) as session:
        return await asyncio.gather(*(_one(session, each, judge, limit_seconds) for each in requests))


async def _one(
    session: aiohttp.ClientSession, request: Request, judge: Callable[[Answer], Outcome], limit_seconds: int
) -> Outcome:
    try:
        async with session.request(
            request.method, request.url, data=request.body or None, headers=request.headers, allow_redirects=False
        ) as answer:
            said = await _beginning(answer)
            return judge(Answer(answer.status, answer.headers.get("Retry-After"), said))._replace(said=said)
    except AddressRefused as error:
        return Outcome(Reason.ADDRESS_REFUSED, str(error))
    except TimeoutError:
        return Outcome(Reason.TIMED_OUT, f"no answer within {limit_seconds} s")
    except aiohttp.ClientSSLError as error:
        return Outcome(Reason.TLS, str(error))
    except (aiohttp.ClientError, OSError) as error:
        return Outcome(Reason.UNREACHABLE, str(error) or type(error).__name__)


async def _beginning(answer: aiohttp.ClientResponse) -> str:
    """Of the body, or as much of it as comes: the status has said what became of the request."""
    read = b""
    try:
        while len(read) < ANSWER_BYTES and (more := await answer.content.read(ANSWER_BYTES - len(read))):
            read += more
    except (TimeoutError, aiohttp.ClientError, OSError):
        # It breaks off, or takes longer than anybody waits.
        pass
    return read.decode(errors="replace")


def _guarded_socket(info: tuple[int, int, int, str, tuple[Any, ...]]) -> socket.socket:
    """The socket for one resolved or literal address. It is judged here, where no other can take its place any more."""
    family, kind, protocol, _, place = info
    if refusal := address_refusal(str(place[0]), rows.WEBHOOK_ALLOWED_NETWORKS.read()):
        raise AddressRefused(refusal)
    return socket.socket(family, kind, protocol)
