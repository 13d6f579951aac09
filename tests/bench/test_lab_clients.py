"""How the lab's clients behave, and what they make of answers: against a server that answers as it is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bench.support.lab.clients import Clients, Kind
from simulator.pathologies.asks import Ask, Draw
from simulator.tokenizer import Words, train_tokenizer
from tests.services import wait_for

TOKEN = b'data: {"choices": [{"delta": {"content": "hi"}}]}\n\n'
DONE = b"data: [DONE]\n\n"


class Server:
    """`events`: what each stream consists of, with what is waited for before each part; None: a refusal."""

    def __init__(self, events: Sequence[tuple[float, bytes]] | None) -> None:
        self.keys: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                server.keys.append(self.headers["authorization"])
                self.rfile.read(int(self.headers["content-length"]))
                body = b'{"error": {"code": "queue_full"}}'
                self.send_response(503 if events is None else 200)
                self.send_header("content-type", "application/json" if events is None else "text/event-stream")
                self.end_headers()
                # A client may have left.
                with suppress(OSError):
                    for seconds, part in [(0.0, body)] if events is None else events:
                        time.sleep(seconds)
                        self.wfile.write(part)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}"


Serve = Callable[[Sequence[tuple[float, bytes]] | None], Server]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[Server] = []

    def start(events: Sequence[tuple[float, bytes]] | None) -> Server:
        servers.append(Server(events))
        servers[-1].thread.start()
        return servers[-1]

    yield start
    for server in servers:
        server.http.shutdown()
        server.thread.join()
        server.http.server_close()


def endings_of(server: Server, kind: Kind, count: int) -> list[str]:
    with Clients(server.url, {"t": ["k-1", "k-2"]}, Words(train_tokenizer())) as clients:
        clients.start({"kind": kind})
        wait_for(lambda: len(clients.ended) >= count, 10, f"{count} requests to end")
        return [each.ending for each in clients.ended][:count]


def visit(leave_after_seconds: float | None = None) -> Callable[[Draw], Sequence[Ask]]:
    return lambda _: [Ask("/v1/chat/completions", {"model": "m"}, {}, leave_after_seconds)]


@pytest.mark.parametrize(
    ("events", "ending"),
    [
        ([(0, TOKEN), (0, TOKEN), (0, DONE)], "good"),
        ([(1.5, TOKEN), (0, TOKEN), (0, DONE)], "late"),
        ([(0, TOKEN), (1.5, TOKEN), (0, DONE)], "late"),
        ([(0, TOKEN)], "cut"),
        (None, "503 queue_full"),
    ],
    ids=["in_time", "late_first_token", "slow_tokens", "no_end", "refused"],
)
def test_an_answer_is_judged_as_its_user_sees_it(
    serve: Serve, events: Sequence[tuple[float, bytes]] | None, ending: str
) -> None:
    kind = Kind("t", visit(), 5.0, ttft_seconds=1, tpot_seconds=1)
    assert endings_of(serve(events), kind, 1) == [ending]


def test_who_does_not_wait_leaves(serve: Serve) -> None:
    assert endings_of(serve([(0.5, TOKEN), (0, DONE)]), Kind("t", visit(0.1), 5.0), 1) == ["left"]


def test_who_came_before_is_known_until_the_first_token_or_the_end(serve: Serve) -> None:
    server = serve([(0.3, TOKEN), (1.0, DONE)])
    with Clients(server.url, {"t": ["k"]}, Words(train_tokenizer())) as clients:

        def left(*may_run: str) -> int:
            return clients.left_from_before(time.monotonic(), may_run)

        before = time.monotonic()
        clients.start({"kind": Kind("t", visit(), 0.01, most_at_once=1)})
        wait_for(lambda: left("kind") == 1, 10, "a request to wait")
        assert clients.left_from_before(before) == 0
        wait_for(lambda: left("kind") == 0, 10, "its first token")
        # The stream goes on.
        assert (left(), left("another")) == (1, 1)
        wait_for(lambda: left() == 0, 10, "its end")


def test_a_refused_visit_is_tried_again_as_often_as_its_kind_does_and_by_the_same_key(serve: Serve) -> None:
    server = serve(None)
    kind = Kind("t", visit(), 0.01, resends=3, resend_seconds=0.01)
    assert endings_of(server, kind, 4) == ["503 queue_full"] * 4
    assert len(server.keys) == 4
    assert len(set(server.keys)) == 1


def test_a_visit_ends_with_its_first_refusal_where_nothing_is_sent_again(serve: Serve) -> None:
    server = serve(None)

    def two(_: Draw) -> Sequence[Ask]:
        return [Ask("/v1/chat/completions", {"number": number}) for number in range(2)]

    endings_of(server, Kind("t", two, 4.0), 2)
    assert len(server.keys) <= 3
