"""Web processes wake each other through a real Redis or PostgreSQL, and manage without one."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis
from django.db import connection, connections

from controlplane.configs.neighbours import Neighbours, PostgresNeighbours, RedisNeighbours, neighbours
from tests.servers import redis_server
from tests.services import free_port, wait_for

# That of the profile's database.
DatabaseWrapper = type(connections["default"])


def test_a_process_that_tells_wakes_the_others(redis_url: str) -> None:
    woken = threading.Event()
    teller, listener = RedisNeighbours(redis_url, lambda: None), RedisNeighbours(redis_url, woken.set)
    listener.start()

    def told() -> bool:
        # Until the listener has subscribed nobody hears.
        teller.tell()
        return woken.wait(0.1)

    try:
        wait_for(told, 10, "the other process to wake")
    finally:
        listener.stop()


@pytest.mark.skipif(connection.vendor != "postgresql", reason="the embedded profile has no PostgreSQL")
@pytest.mark.django_db(transaction=True)
def test_without_redis_postgresql_wakes_them() -> None:
    woken = threading.Event()
    teller, listener = PostgresNeighbours(lambda: None), PostgresNeighbours(woken.set)
    listener.start()

    def told() -> bool:
        teller.tell()
        return woken.wait(0.1)

    try:
        wait_for(told, 10, "the other process to wake")
    finally:
        listener.stop()
        wait_for(lambda: not listener.running, 10, "its connection to end")


@pytest.mark.parametrize("kind", ["redis", "postgresql"])
def test_a_service_that_is_away_is_said_once_and_stops_nothing(
    kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    away: Neighbours
    if kind == "redis":
        away = RedisNeighbours(f"redis://127.0.0.1:{free_port()}/0", lambda: None)
    else:
        nowhere = {"host": "127.0.0.1", "port": free_port()}
        monkeypatch.setattr(DatabaseWrapper, "get_connection_params", lambda _: nowhere)
        away = PostgresNeighbours(lambda: None)
    with caplog.at_level(logging.WARNING):
        away.start()
        wait_for(lambda: "by polling" in caplog.text, 10, "the warning")
        for _ in range(5):
            away.tell()
        away.stop()
        wait_for(lambda: not away.running, 10, "its thread to end")
    assert caplog.text.count("by polling") == 1


@contextmanager
def stopped(process_id: int) -> Iterator[None]:
    os.kill(process_id, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process_id, signal.SIGCONT)


def test_a_redis_that_hangs_holds_nobody_up_and_is_found_again(caplog: pytest.LogCaptureFixture) -> None:
    with redis_server() as url:
        redis_id = int(redis.Redis.from_url(url).info("server")["process_id"])
        woken = threading.Event()
        teller, listener = RedisNeighbours(url, lambda: None), RedisNeighbours(url, woken.set)
        teller.start()
        listener.start()

        def told() -> bool:
            teller.tell()
            return woken.wait(0.1)

        try:
            wait_for(told, 10, "the other process to wake")
            with stopped(redis_id), caplog.at_level(logging.WARNING):
                began = time.monotonic()
                for _ in range(25):
                    teller.tell()
                assert time.monotonic() - began < 4, "one waits 0.2 s, and not all"
                # Not before it answers again, however long its connections stay open.
                wait_for(lambda: caplog.text.count("by polling") == 2, 10, "the listener to notice too")
                assert teller._away
                assert listener._away
            woken.clear()
            wait_for(told, 20, "the other process to wake again")
            assert not teller._away
        finally:
            teller.stop()
            listener.stop()
            wait_for(lambda: not teller.running and not listener.running, 10, "their threads to end")


def test_redis_comes_first_and_sqlite_has_nobody_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(neighbours("redis://127.0.0.1:1/0", lambda: None), RedisNeighbours)
    for vendor, kind in (("postgresql", PostgresNeighbours), ("sqlite", type(None))):
        monkeypatch.setattr(DatabaseWrapper, "vendor", vendor)
        assert isinstance(neighbours("", lambda: None), kind)
