"""One bounded HTTP call to the control plane, and the two ways in which it can fail."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import aiohttp
import msgspec

from wire import PROTOCOL
from wire.messages import UNREADABLE

# The largest artifact; what is posted is answered in a few words, and a node keeps no room for more.
ANSWER_LIMIT_BYTES = {"GET": 64 * 2**20, "POST": 2**20}
CALL_TIMEOUT = aiohttp.ClientTimeout(total=60, sock_connect=5, sock_read=10)
HEADERS = {"X-Headworks-Protocol": str(PROTOCOL)}
JSON_BODY: Mapping[str, str] = {"Content-Type": "application/json"}
_PROBLEM_LIMIT_BYTES = 64 * 2**10
_RETRIED_STATUSES = (408, 425, 429)
# Nobody is told to stay away for longer.
_RETRY_AFTER_LIMIT_SECONDS = 60


class TargetRefused(Exception):
    """The control plane refused for good (401, 403, 409, 426 …): the same call would be refused again.

    `code` is the problem's named reason, `message` says what would be right, `status` is the HTTP status (0: the
    refusal was made here, before any call).
    """

    def __init__(self, code: str, message: str, status: int = 0) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status = code, message, status

    @property
    def of_token(self) -> bool:
        """The bearer token itself is not taken: unknown, expired, or its target revoked."""
        return self.status == 401 or self.code == "revoked"


class TargetUnavailable(aiohttp.ClientError):
    """No usable answer this time; the same call may succeed later, after `retry_after_seconds` if that is not 0."""

    def __init__(self, message: str, retry_after_seconds: int = 0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class _ProblemDocument(msgspec.Struct):
    """The parts of RFC 9457 that a target reads."""

    code: str = ""
    title: str = ""
    detail: str = ""


async def call(
    session: aiohttp.ClientSession,
    method: Literal["GET", "POST"],
    url: str,
    *,
    token: str | None = None,
    body: bytes | None = None,
    body_headers: Mapping[str, str] = JSON_BODY,
) -> bytes:
    """The answer's body, at most `ANSWER_LIMIT_BYTES` of it for that method. `body_headers` say what `body` is.

    Raises: TargetRefused, or an aiohttp.ClientError (TargetUnavailable among them) where a retry makes sense.
    """
    headers = {**HEADERS, **authorization(token)}
    if body is not None:
        headers.update(body_headers)
    try:
        # A redirect could carry the token to another host.
        async with session.request(
            method, url, data=body, headers=headers, timeout=CALL_TIMEOUT, allow_redirects=False
        ) as response:
            if not 200 <= response.status < 300:
                raise await failure_of(response)
            return await _read(response, ANSWER_LIMIT_BYTES[method])
    except TimeoutError as error:
        raise TargetUnavailable("no answer in time") from error


def authorization(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


async def failure_of(response: aiohttp.ClientResponse) -> TargetRefused | TargetUnavailable:
    """What an answer outside 2xx means, read from its problem+json where it has one."""
    try:
        problem = msgspec.json.decode(await _read(response, _PROBLEM_LIMIT_BYTES), type=_ProblemDocument)
    except (*UNREADABLE, TargetUnavailable):
        problem = _ProblemDocument()
    status = response.status
    message = problem.detail or problem.title or f"{status} {response.reason}"
    if 400 <= status < 500 and status not in _RETRIED_STATUSES:
        return TargetRefused(problem.code or f"http_{status}", message, status)
    if 300 <= status < 400:
        message = "redirects are not followed; give the address that the control plane itself answers at"
    return TargetUnavailable(f"answered {status}: {message}", _retry_after_seconds(response))


def _retry_after_seconds(response: aiohttp.ClientResponse) -> int:
    """What `Retry-After` asks for; 0 where it gives a date, or none. Source: RFC 9110, 10.2.3."""
    given = response.headers.get("Retry-After", "")
    return min(int(given), _RETRY_AFTER_LIMIT_SECONDS) if re.fullmatch(r"[0-9]{1,9}", given) else 0


async def _read(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
    answer = bytearray()
    async for chunk in response.content.iter_any():
        answer += chunk
        if len(answer) > limit_bytes:
            raise TargetUnavailable(f"answered more than {limit_bytes} bytes")
    return bytes(answer)
