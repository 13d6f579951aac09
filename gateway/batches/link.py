"""Calls to the control plane for batches: streamed both ways, and refused by name where it refuses."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

import aiohttp
import msgspec

from gateway.refusals import REASONS, Refused
from wire.batches import TENANT_HEADER, WORK_PATH
from wire.control_api import TargetRefused
from wire.messages import UNREADABLE
from wire.target import TargetClient

# An upload may take as long as its client does; a control plane that says nothing for so long is away.
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=60)
ANSWER_BYTES = 256 * 2**20
_RETRY_SECONDS = 5.0
# The control plane's name for it, and ours.
_SAME = {"too_large": "body_too_large"}
# What no waiting mends: official clients would come again by themselves (409, 429).
_NO_RETRY = ((b"x-should-retry", b"false"),)
_OURS_TO_MEND = frozenset({"file_in_use", "batch_ended", "batch_files_full", "too_many_batches"})

Method = Literal["GET", "POST"]


class _Problem(msgspec.Struct):
    code: str = ""
    detail: str = ""


class Link:
    """The control plane, as the target that this gateway is."""

    def __init__(self, client: TargetClient) -> None:
        self._client = client

    @asynccontextmanager
    async def call(
        self,
        method: Method,
        path: str,
        *,
        tenant: str,
        data: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer with a status of 2xx, to be read inside. Raises: Refused."""
        own = {TENANT_HEADER: tenant, **(headers or {})}
        try:
            async with self._client.request(method, WORK_PATH + path, own, data, _TIMEOUT) as response:
                if not 200 <= response.status < 300:
                    raise await _refusal(response)
                yield response
        except (aiohttp.ClientError, TargetRefused, OSError) as error:
            raise unavailable(str(error) or type(error).__name__) from error


async def whole(response: aiohttp.ClientResponse, most_bytes: int = ANSWER_BYTES) -> bytes:
    """The body of an answer. Raises: Refused where it is larger."""
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > most_bytes:
            raise unavailable(f"more than {most_bytes} bytes")
    return bytes(body)


def unavailable(said: str) -> Refused:
    return Refused(
        "batches_unavailable",
        f"files and batches are kept by the control plane, which does not answer now ({said})",
        retry_after_seconds=_RETRY_SECONDS,
    )


async def _refusal(response: aiohttp.ClientResponse) -> Refused:
    try:
        problem = msgspec.json.decode(await whole(response), type=_Problem)
    except UNREADABLE:
        problem = _Problem()
    reason = _SAME.get(problem.code, problem.code)
    if reason in REASONS:
        return Refused(reason, problem.detail, headers=_NO_RETRY if reason in _OURS_TO_MEND else ())
    if response.status == 422:
        return Refused("bad_batch", problem.detail)
    refused = unavailable(f"{response.status} {problem.code}".strip())
    asked = response.headers.get("Retry-After", "")
    if re.fullmatch("[0-9]{1,4}", asked):
        refused.retry_after_seconds = float(asked)
    return refused
