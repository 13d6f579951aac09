"""A receiver of messages for the tests: a real HTTP server that answers as it is told."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from controlplane.alerts.receivers.webhook import DELIVERY_HEADER, SIGNATURE_HEADER

ALLOWED = "127.0.0.0/8"
CLOSE = "close"
HANG = "hang"


class Got(NamedTuple):
    """One attempt that came in."""

    delivery: str
    signature: str
    body: bytes
    method: str = "POST"
    path: str = ""
    headers: Mapping[str, str] = {}

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)
        return document


class Answer(NamedTuple):
    """`body` is what it says; `echo`: the request instead. `promised`: bytes that it says come, whatever comes."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    echo: bool = False
    promised: int | None = None


class OnCall:
    """`answers` are given one after the other, then 200: an Answer, CLOSE (no answer) or HANG (none until released)."""

    def __init__(self, *answers: Answer | str) -> None:
        self.got: list[Got] = []
        self.answers = deque(answers)
        self.release = threading.Event()
        self.in_flight = self.most_in_flight = 0
        self.lock = threading.Lock()
        on_call = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                on_call._take(self)

            do_GET = do_POST

            def log_message(self, format: str, *args: object) -> None:
                """Nothing on the tests' output."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def _take(self, request: BaseHTTPRequestHandler) -> None:
        with self.lock:
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
            headers = request.headers
            with self.lock:
                self.got.append(
                    Got(
                        headers.get(DELIVERY_HEADER, ""),
                        headers.get(SIGNATURE_HEADER, ""),
                        body,
                        request.command,
                        request.path,
                        dict(headers),
                    )
                )
                answer = self.answers.popleft() if self.answers else Answer()
            if answer == HANG:
                self.release.wait(30)
        finally:
            # Before the answer: whoever has it may begin the next one.
            with self.lock:
                self.in_flight -= 1
        if isinstance(answer, str):
            request.close_connection = True
            return
        said = f"{request.path}\n{request.headers}".encode() + body if answer.echo else answer.body
        request.send_response(answer.status)
        for name, value in answer.headers:
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(said) if answer.promised is None else answer.promised))
        request.end_headers()
        try:
            request.wfile.write(said)
        except OSError:
            # Who asked has read enough.
            request.close_connection = True


@contextmanager
def on_call(*answers: Answer | str) -> Iterator[OnCall]:
    receiver = OnCall(*answers)
    thread = threading.Thread(target=receiver.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.release.set()
        receiver.server.shutdown()
        thread.join()
        receiver.server.server_close()
