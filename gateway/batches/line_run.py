"""One line of a batch, run through the pipeline that a request takes, as nobody's client and into memory."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gateway.batches.calls import need_class
from gateway.batches.rooms import Rooms
from gateway.exchange import Exchange, Message
from gateway.pipeline import STAGES, Stage, run
from gateway.refusals import Refused
from gateway.schemas import check_schema
from gateway.state import NOTHING_YET
from policy.admission import check_tenant
from policy.asks import ENDPOINTS
from wire.batches import LeasedLine
from wire.messages import UNREADABLE
from wire.snapshot import Tenant

if TYPE_CHECKING:
    from gateway.state import Gateway

_SECONDS = re.compile(rb"[0-9]{1,9}")


class Answer(NamedTuple):
    """What came of it. `reason`: the name of a refusal, empty where it was none. `pool`: where it was routed to."""

    status: int
    request_id: str
    body: bytes
    reason: str
    retry_after_ms: int
    pool: str


class LineRun:
    """A line on its way. `rooms`: where it waits for its turn; `ends_at`: monotonic, the end of its batch's window."""

    def __init__(self, line: LeasedLine, rooms: Rooms, batch_class: str, ends_at: float) -> None:
        self.line, self.rooms, self.batch_class, self.ends_at = line, rooms, batch_class, ends_at
        self.has_entered = False
        self._x: Exchange | None = None

    def follows(self, x: Exchange) -> None:
        x.line, self._x = self, x

    def give_up(self) -> bool:
        """As a client leaves; whether it may: what has begun is let end. Whoever asks cancels its task then."""
        if self.has_entered or self._x is None:
            return False
        self._x.client_left = True
        return True

    def tenant(self, x: Exchange) -> tuple[str, Tenant]:
        """As `find_tenant`, of whom the control plane says it is. Raises: Refused, NotAdmitted."""
        name = self.line.tenant
        tenant = x.view.snapshot.tenants.get(name)
        if tenant is None:
            raise Refused("unknown_key", f"the tenant {name!r} is gone, and with it its keys")
        check_tenant(name, tenant)
        need_class(x, self.batch_class)
        return name, tenant


async def wait_for_room(x: Exchange) -> None:
    """A stage of lines alone: until interactive requests leave room for one more in its pool."""
    run = x.line
    if run is None:
        return
    await run.rooms.enter(x, x.route.pools[0])
    run.has_entered = True
    # What follows is timed as a request's that comes now.
    x.arrived = time.monotonic()
    x.deadline = min(x.arrived + x.gateway.limits.max_request_seconds, run.ends_at)


def _stages() -> tuple[Stage, ...]:
    """Those of a request, with the wait where nothing is held yet: neither quota nor an engine."""
    place = STAGES.index(check_schema) + 1
    return (*STAGES[:place], wait_for_room, *STAGES[place:])


LINE_STAGES = _stages()


async def run_line(gateway: Gateway, line_run: LineRun) -> Answer:
    """Run a line to its end, in a task of its own. What it used is charged as a request's is."""
    line = line_run.line
    headers = [(b"content-type", b"application/json"), (b"x-priority-class", line_run.batch_class.encode())]
    scope: Message = {
        "type": "http", "http_version": "1.1", "method": "POST", "path": line.endpoint, "headers": headers,
    }  # fmt: skip
    into = _Into(bytes(line.body))
    x = Exchange(gateway, gateway.view or NOTHING_YET, scope, into.receive, into.send)
    line_run.follows(x)
    # Waiting for room is bounded by the window alone.
    x.deadline = line_run.ends_at
    x.read_headers()
    x.endpoint = ENDPOINTS[line.endpoint]
    try:
        await run(x, LINE_STAGES)
    finally:
        line_run.rooms.leave(x)
    pool = x.route.pools[0] if x.route.pools else ""
    reason = "" if 200 <= into.status < 300 else _reason(into.body)
    return Answer(into.status, x.request_id.decode(), bytes(into.body), reason, into.retry_after_ms, pool)


class _Into:
    """A client that has sent its whole body, stays, and keeps what it is sent."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self.status = 0
        self.retry_after_ms = 0
        self.body = bytearray()

    async def receive(self) -> Message:
        body, self._body = self._body, None
        if body is None:
            await asyncio.get_running_loop().create_future()
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            asked = dict(message["headers"]).get(b"retry-after", b"")
            if _SECONDS.fullmatch(asked):
                self.retry_after_ms = int(asked) * 1000
        else:
            self.body += message["body"]


class _Error(msgspec.Struct):
    code: str | int | None = None


class _Refusal(msgspec.Struct):
    error: _Error


def _reason(body: bytearray) -> str:
    try:
        return str(msgspec.json.decode(body, type=_Refusal).error.code or "")
    except UNREADABLE:
        return ""
