"""One question that an engine is asked to see whether its API does what it should, and what became of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

from gpu_agent.engines.keys import Key, KeyUnusable
from gpu_agent.engines.pages import EnginePages, PageUnavailable
from wire.messages import UNREADABLE

_SAID_CHARACTERS = 200
_HIDDEN = "***"
# A server without the path says so; one that lacks the model explains itself as OpenAI does.
_NO_SUCH_PATH = (404, 405, 501)
# A queue that is full says nothing of the API, and its own signals tell of it.
_FULL = (429, 503)


class Undecided(Exception):
    """An answer that shows neither: the message says why."""


@dataclass(frozen=True)
class Probe:
    """`question(model)` is what is posted to `path`.

    `broken_rule(body)` of an answer with status 200: what is wrong with it, beginning with the rule's name; empty for
    nothing. It may raise Undecided.
    """

    name: str
    path: str
    question: Callable[[str], bytes]
    broken_rule: Callable[[bytes], str]


class Outcome(NamedTuple):
    """`failure` begins with the name of the rule that was broken; empty: it held, after so many seconds."""

    failure: str
    seconds: float

    @property
    def state(self) -> Literal["ok", "failed"]:
        return "failed" if self.failure else "ok"


class _Error(msgspec.Struct):
    message: str = ""


class _Refusal(msgspec.Struct):
    error: _Error


async def ask(
    pages: EnginePages, url: str, model: str, probe: Probe, deadline: float, read_key: Callable[[], Awaitable[Key]]
) -> Outcome:
    """What the probe shows. Raises: Undecided, also where the engine does not speak this API."""
    begun_seconds = time.monotonic()
    key = ""
    try:
        async with asyncio.timeout_at(deadline):
            read = await read_key()
        key = read.text
        status, body = await pages.ask(url + probe.path, probe.question(model), deadline, read)
        if key:
            # An engine may repeat what it was sent, and what is said of that may be cut in the middle of the key.
            body = body.replace(key.encode(), _HIDDEN.encode())
        failure = probe.broken_rule(body) if status == 200 else _refusal(status, body)
    except PageUnavailable as error:
        failure = f"no_answer: {probe.path}: {error}"
    except TimeoutError:
        failure = "api_key_file: it could not be read in time"
    except KeyUnusable as error:
        failure = f"api_key_file: {error}"
    said = failure.replace(key, _HIDDEN) if key else failure
    return Outcome(" ".join(said.split()), time.monotonic() - begun_seconds)


def _refusal(status: int, body: bytes) -> str:
    """Raises: Undecided for a server that has no such path, or no room."""
    if status in _FULL:
        raise Undecided(f"it takes no more requests now ({status})")
    try:
        said = msgspec.json.decode(body, type=_Refusal).error.message
    except UNREADABLE:
        if status in _NO_SUCH_PATH:
            raise Undecided("it has no such API") from None
        said = ""
    return f"refused_{status}: {said[:_SAID_CHARACTERS] or 'without a reason'}"
