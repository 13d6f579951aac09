"""Remote writes as the web process takes them: beside Django, in threads of their own."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError

from controlplane.telemetry import ingest, receiver
from controlplane.telemetry.ingest import PATH, with_remote_write
from tests.controlplane.telemetry import writing
from tests.controlplane.telemetry.test_receiver import stored
from wire.write_body import Series, encode

pytestmark = pytest.mark.django_db(transaction=True)
END = {"type": "http.disconnect"}


async def call(application: Any, messages: list[dict[str, Any]], token: str, path: str = PATH) -> tuple[int, bytes]:
    """Status and body of the answer; (0, b"") where there was none."""
    answer = await writing.call(application, messages, token, path)
    return (answer.status_code, answer.content) if answer else (0, b"")


@pytest.fixture
def application() -> Any:
    return with_remote_write(writing.site)


@pytest.fixture
def gateway(pusher: Any) -> Any:
    return pusher("gateway", "gw-1")


def parts(body: bytes, size: int = 10) -> list[dict[str, Any]]:
    pieces = [body[start : start + size] for start in range(0, len(body), size)] or [b""]
    return [
        {"type": "http.request", "body": piece, "more_body": number < len(pieces) - 1}
        for number, piece in enumerate(pieces)
    ]


def written(now_ms: int, name: str = "a") -> bytes:
    return encode([Series({"__name__": name, "gateway": "gw-1"}, [(now_ms, 1.0)])])


async def test_a_body_in_parts_is_stored(application, gateway, own_store, now_ms):
    assert await call(application, parts(written(now_ms)), gateway.token) == (204, b"")
    assert stored(own_store) == 1


async def test_other_addresses_are_the_sites(application):
    assert await call(application, parts(b""), "", path="/prometheus/api/v1/query") == (299, b"the site")


async def test_a_stranger_is_refused_before_the_body_is_read(application):
    # No message of the body ever comes: the answer does not wait for one.
    status, _ = await asyncio.wait_for(call(application, [], "wrong"), 10)
    assert status == 401


async def test_a_body_that_is_too_large_is_not_read_to_its_end(application, gateway, monkeypatch):
    monkeypatch.setenv("HEADWORKS_METRICS_BODY_MAX_BYTES", "1024")
    endless = [{"type": "http.request", "body": bytes(600), "more_body": True}] * 2
    status, _ = await asyncio.wait_for(call(application, endless, gateway.token), 10)
    assert status == 413


async def test_a_writer_that_leaves_is_forgotten(application, gateway, own_store, now_ms):
    cut: list[dict[str, Any]] = [{"type": "http.request", "body": written(now_ms)[:5], "more_body": True}, END]
    assert await call(application, cut, gateway.token) == (0, b"")
    assert stored(own_store) == 0


async def test_a_body_that_does_not_come_is_given_up(application, gateway, monkeypatch):
    monkeypatch.setattr(ingest, "_BODY_SECONDS", 0.05)
    status, _ = await asyncio.wait_for(call(application, [], gateway.token), 10)
    assert status == 400


async def test_too_many_at_once_are_told_to_come_again(application, gateway, now_ms, monkeypatch):
    monkeypatch.setattr(ingest, "_IN_HAND_MAX", 1)
    inside, go_on = asyncio.Event(), threading.Event()
    loop, take = asyncio.get_running_loop(), receiver.take

    def slow(*arguments: Any) -> int:
        loop.call_soon_threadsafe(inside.set)
        go_on.wait(10)
        return take(*arguments)

    monkeypatch.setattr(receiver, "take", slow)
    first = asyncio.create_task(call(application, parts(written(now_ms)), gateway.token))
    await asyncio.wait_for(inside.wait(), 10)
    status, _ = await call(application, parts(written(now_ms, "b")), gateway.token)
    go_on.set()
    assert status == 503
    assert await first == (204, b"")
    assert await call(application, parts(written(now_ms, "b")), gateway.token) == (204, b"")


@pytest.mark.parametrize("lost", [OperationalError("no connection"), InterfaceError("connection already closed")])
async def test_a_database_that_is_away_asks_to_send_again(application, gateway, now_ms, monkeypatch, lost):
    def away(request: Any) -> None:
        raise lost

    monkeypatch.setattr(receiver, "target_of", away)
    status, _ = await call(application, parts(written(now_ms)), gateway.token)
    assert status == 503


async def test_many_writers_at_once_all_get_in(application, gateway, own_store, now_ms):
    bodies = [written(now_ms, f"metric_{number}") for number in range(40)]
    answers = await asyncio.gather(*(call(application, parts(body, 1000), gateway.token) for body in bodies))
    assert {status for status, _ in answers} == {204}
    assert stored(own_store) == 40
