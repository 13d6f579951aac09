"""Web processes wake each other through a real Redis, and manage without one."""

from __future__ import annotations

import logging
import threading

import pytest

from controlplane.configs.neighbours import Neighbours
from tests.services import free_port, wait_for


def test_a_process_that_tells_wakes_the_others(redis_url: str) -> None:
    woken = threading.Event()
    teller, listener = Neighbours(redis_url, lambda: None), Neighbours(redis_url, woken.set)
    teller.start()
    listener.start()

    def told() -> bool:
        # Until the listener has subscribed nobody hears.
        teller.tell()
        return woken.wait(0.1)

    try:
        wait_for(told, 10, "the other process to wake")
    finally:
        teller.stop()
        listener.stop()


def test_redis_away_is_said_once_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    neighbours = Neighbours(f"redis://127.0.0.1:{free_port()}/0", lambda: None)
    with caplog.at_level(logging.WARNING):
        neighbours.start()
        wait_for(lambda: "by polling" in caplog.text, 10, "the warning")
        for _ in range(5):
            neighbours.tell()
        neighbours.stop()
    assert caplog.text.count("by polling") == 1


def test_without_redis_there_is_nothing_to_tell() -> None:
    neighbours = Neighbours("", lambda: None)
    neighbours.start()
    neighbours.tell()
    neighbours.stop()
