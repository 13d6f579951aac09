"""A receiver of webhooks for the tests: a real HTTP server that answers as it is told."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from controlplane.alerts.webhook import DELIVERY_HEADER, SIGNATURE_HEADER

ALLOWED = "127.0.0.0/8"
CLOSE = "close"
HANG = "hang"


class Got(NamedTuple):
    """One attempt that came in."""

    delivery: str
    signature: str
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)
        return document


class Answer(NamedTuple):
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


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

            def do_GET(self) -> None:
                raise AssertionError("a redirect was followed")

            def log_message(self, format: str, *args: object) -> None:
                """Nothing on the tests' output."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/hook"

    def _take(self, request: BaseHTTPRequestHandler) -> None:
        with self.lock:
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            body = request.rfile.read(int(request.headers["Content-Length"]))
            with self.lock:
                self.got.append(Got(request.headers[DELIVERY_HEADER], request.headers[SIGNATURE_HEADER], body))
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
        request.send_response(answer.status)
        for name, value in answer.headers:
            request.send_header(name, value)
        request.send_header("Content-Length", "0")
        request.end_headers()


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
