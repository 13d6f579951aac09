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


async def test_a_body_that_does_not_come_in_time_is_asked_for_again(application, gateway, monkeypatch):
    """A slow network is nothing that is wrong with the body: 400 would have the writer drop it."""
    monkeypatch.setattr(ingest, "_BODY_SECONDS", 0.05)
    answer = await asyncio.wait_for(writing.call(application, [], gateway.token), 10)
    assert answer is not None
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) > 0


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


@pytest.fixture
def slow(pusher: Any) -> Any:
    return pusher("gateway", "slow")


@pytest.fixture
def third(pusher: Any) -> Any:
    return pusher("gateway", "third")


async def test_one_writer_whose_bodies_come_slowly_keeps_no_other_out(application, slow, gateway, now_ms, monkeypatch):
    monkeypatch.setattr(ingest, "_IN_HAND_MAX", 4)
    monkeypatch.setattr(ingest, "_IN_HAND_OF_ONE_MAX", 2)
    waiting = [asyncio.create_task(call(application, [], slow.token)) for _ in range(3)]
    done, held = await asyncio.wait(waiting, timeout=10, return_when=asyncio.FIRST_COMPLETED)
    assert ([task.result()[0] for task in done], len(held)) == ([503], 2)
    assert await call(application, parts(written(now_ms), 1000), gateway.token) == (204, b"")
    for each in held:
        each.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    # What ended gave its place back.
    again = [asyncio.create_task(call(application, [END], slow.token)) for _ in range(2)]
    assert await asyncio.gather(*again) == [(0, b"")] * 2


async def stalled(application: Any, tokens: list[str], monkeypatch: Any) -> tuple[list[int], list[asyncio.Task[Any]]]:
    """Bodies of 1000 bytes that do not end, where four of 1024 have room: statuses of those refused, and the rest."""
    monkeypatch.setenv("HEADWORKS_METRICS_BODY_MAX_BYTES", "1024")
    halfway: list[dict[str, Any]] = [{"type": "http.request", "body": bytes(1000), "more_body": True}]
    waiting = [asyncio.create_task(call(application, halfway, token)) for token in tokens]
    done, held = await asyncio.wait(waiting, timeout=10, return_when=asyncio.FIRST_COMPLETED)
    return [task.result()[0] for task in done], list(held)


async def ended(held: list[asyncio.Task[Any]]) -> None:
    for each in held:
        each.cancel()
    await asyncio.gather(*held, return_exceptions=True)


async def test_bytes_of_one_writers_bodies_keep_no_other_out(application, slow, gateway, now_ms, monkeypatch):
    statuses, held = await stalled(application, [slow.token] * 3, monkeypatch)
    assert (statuses, len(held)) == ([503], 2)
    assert await call(application, parts(written(now_ms), 1000), gateway.token) == (204, b"")
    await ended(held)


async def test_bytes_of_all_bodies_in_hand_are_bounded(application, slow, gateway, third, now_ms, monkeypatch):
    statuses, held = await stalled(application, [slow.token, gateway.token] * 2 + [third.token], monkeypatch)
    assert (statuses, len(held)) == ([503], 4)
    await ended(held)
    assert await call(application, parts(written(now_ms), 1000), gateway.token) == (204, b"")


@pytest.mark.parametrize("lost", [OperationalError("no connection"), InterfaceError("connection already closed")])
async def test_a_database_that_is_away_asks_to_send_again(application, gateway, now_ms, monkeypatch, lost):
    def away(request: Any) -> None:
        raise lost

    monkeypatch.setattr(receiver, "target_of", away)
    status, _ = await call(application, parts(written(now_ms)), gateway.token)
    assert status == 503


async def test_many_writers_at_once_all_get_in(application, gateway, own_store, now_ms):
    bodies = [written(now_ms, f"metric_{number}") for number in range(30)]
    answers = await asyncio.gather(*(call(application, parts(body, 1000), gateway.token) for body in bodies))
    assert {status for status, _ in answers} == {204}
    assert stored(own_store) == 30
