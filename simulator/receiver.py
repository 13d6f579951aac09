"""`python -m simulator.receiver`: an on-call receiver of signed webhooks, for the demo and tests.

`POST /webhook` takes a delivery: its signature is verified, what came is appended to a file as one line of JSON (see
`Taken`), and the answer is 200. `POST /fail` with `{"times": 3}` makes the next three deliveries answer 500.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import hmac
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
from msgspec import Meta, Struct

from simulator.http_parser import HttpRequest
from simulator.http_server import Exchange, Server, error_body
from wire.files import read_bounded
from wire.messages import UNREADABLE
from wire.settings import whole_number

SIGNATURE_TOLERANCE_SECONDS = 300
_SECRET_LIMIT_BYTES = 4096
_FLUSH_SECONDS = 1.0
_port = whole_number(0, 65_535)
log = logging.getLogger("simulator.receiver")


class Taken(Struct, frozen=True):
    """One attempt that came in. `refusal` is empty where its signature is valid; `answered` is an HTTP status."""

    received_at_ms: int
    delivery: str
    refusal: str
    answered: int
    body: Any


class Fail(Struct, frozen=True, forbid_unknown_fields=True):
    """How many of the next deliveries answer 500."""

    times: Annotated[int, Meta(ge=0, le=1000)]


def signature_refusal(secret: str, header: str, body: bytes, now_seconds: float) -> str:
    """Why `t=<Unix seconds>,v1=<hex>` does not sign this body (HMAC-SHA256 of `t.body`) now; empty: it does."""
    parts = dict(part.partition("=")[::2] for part in header.split(","))
    stamp, given = parts.get("t", ""), parts.get("v1", "")
    if not (stamp.isascii() and stamp.isdecimal() and given):
        return "no signature of the form t=<Unix seconds>,v1=<hex>"
    expected = hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected.encode(), given.encode()):
        return "signed with another secret, or changed on its way"
    if abs(now_seconds - int(stamp)) > SIGNATURE_TOLERANCE_SECONDS:
        return f"signed more than {SIGNATURE_TOLERANCE_SECONDS} s before or after now"
    return ""


class Receiver:
    """Answers deliveries. `clock` is Unix time in seconds."""

    def __init__(self, secret: str, out: BinaryIO, clock: Callable[[], float] = time.time) -> None:
        self._secret, self._out, self._clock = secret, out, clock
        self._failures = 0

    def __call__(self, exchange: Exchange) -> None:
        request = exchange.request
        if (request.method, request.path) == (b"POST", b"/webhook"):
            self._take(exchange, request)
        elif (request.method, request.path) == (b"POST", b"/fail"):
            self._fail(exchange, request)
        elif (request.method, request.path) == (b"GET", b"/health"):
            exchange.answer(200, b"{}")
        else:
            exchange.answer(404, error_body(404, "NotFoundError", "there are POST /webhook, POST /fail, GET /health"))

    def _take(self, exchange: Exchange, request: HttpRequest) -> None:
        header = request.headers.get(b"x-headworks-signature", b"").decode("latin-1")
        refusal = signature_refusal(self._secret, header, request.body, self._clock())
        try:
            body = msgspec.json.decode(request.body)
        except UNREADABLE as error:
            exchange.answer(400, error_body(400, "BadRequestError", f"the body is no JSON: {error}"))
            return
        status = 401 if refusal else 500 if self._failures else 200
        self._failures -= status == 500
        taken = Taken(
            received_at_ms=int(self._clock() * 1000),
            delivery=request.headers.get(b"x-headworks-delivery", b"").decode("latin-1"),
            refusal=refusal,
            answered=status,
            body=body,
        )
        # Written before it is answered: a 200 says that it is kept.
        self._out.write(msgspec.json.encode(taken) + b"\n")
        self._out.flush()
        if status == 200:
            exchange.answer(200, b"{}")
        else:
            exchange.answer(status, error_body(status, "ReceiverError", refusal or "told to fail"))

    def _fail(self, exchange: Exchange, request: HttpRequest) -> None:
        try:
            self._failures = msgspec.json.decode(request.body, type=Fail).times
        except UNREADABLE as error:
            exchange.answer(400, error_body(400, "BadRequestError", f'give {{"times": 3}}: {error}'))
            return
        exchange.answer(200, b"{}")


async def serve(receiver: Receiver, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT. Raises: OSError when the address cannot be taken."""
    server = Server(receiver)
    port = await server.listen(host, port)
    log.info("receiver of webhooks on http://%s:%d/webhook", host, port)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    await server.close(_FLUSH_SECONDS)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 ended by SIGTERM or SIGINT, 1 a file or an address that cannot be used, 2 a usage error."""
    parser = argparse.ArgumentParser(prog="python -m simulator.receiver", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=_port, default=8099, help="0 lets the system choose; the port is printed")
    parser.add_argument(
        "--secret-file", type=Path, required=True, help="the signing secret that the control plane gave"
    )
    parser.add_argument("--out", type=Path, required=True, help="file that each delivery is appended to")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    try:
        secret = read_bounded(options.secret_file, _SECRET_LIMIT_BYTES).decode().strip()
        descriptor = os.open(options.out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "ab") as out:
            asyncio.run(serve(Receiver(secret, out), options.host, options.port))
    except (OSError, ValueError) as error:
        log.error("cannot receive webhooks: %s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
