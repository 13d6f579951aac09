"""Web processes wake each other: through Redis where there is one, else through PostgreSQL where that is the database.

Without either, or with it away, they find each other's writes by polling.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

import psycopg
import redis
from django.db import Error, connection
from redis.backoff import NoBackoff
from redis.retry import Retry

log = logging.getLogger(__name__)

CHANNEL = "headworks_config"
_TIMEOUT_SECONDS = 2
# Telling is done by the thread that distributes: it waits for nobody.
_TELL_SECONDS = 0.2
_RETRY_SECONDS = 5.0
_LISTEN_SECONDS = 1.0


class Neighbours(ABC):
    """`wake` is called when another process has written or published."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._stopping = threading.Event()
        self._away = False
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        self._stopping.clear()
        self._thread = threading.Thread(target=self._listen, name="config-neighbours", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def tell(self) -> None:
        """Wake the other processes; they find out by polling if this fails."""
        if self._away:
            return
        try:
            self._tell()
        except (redis.RedisError, psycopg.Error, Error) as error:
            self._lost(error)

    @abstractmethod
    def _tell(self) -> None:
        """Send one message."""

    @abstractmethod
    def _follow(self) -> None:
        """Wake at every message until stopped; call `_found` whenever it is seen that they can arrive."""

    def _listen(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except (redis.RedisError, psycopg.Error) as error:
                self._lost(error)
                self._stopping.wait(_RETRY_SECONDS)

    def _lost(self, error: Exception) -> None:
        if not self._away:
            name = type(error).__name__
            log.warning("web processes cannot wake each other (%s) and find each other's writes by polling", name)
        self._away = True

    def _found(self) -> None:
        if self._away:
            log.info("web processes wake each other again")
        self._away = False


class RedisNeighbours(Neighbours):
    """By publishing to a channel."""

    def __init__(self, url: str, wake: Callable[[], None]) -> None:
        super().__init__(wake)
        self._telling, self._listening = _client(url, _TELL_SECONDS), _client(url, _TIMEOUT_SECONDS)

    def _tell(self) -> None:
        self._telling.publish(CHANNEL, b"")

    def _follow(self) -> None:
        with self._listening.pubsub() as channel:  # type: ignore[no-untyped-call]
            channel.subscribe(CHANNEL)
            asked = False
            while not self._stopping.is_set():
                heard = channel.get_message(timeout=_LISTEN_SECONDS)
                if heard is not None:
                    # Its answer to the subscription or to a ping counts too: it is there.
                    self._found()
                    asked = False
                    if heard["type"] == "message":
                        self._wake()
                elif asked:
                    raise redis.TimeoutError("Redis is silent")
                else:
                    channel.ping()
                    asked = True


def _client(url: str, timeout_seconds: float) -> redis.Redis:
    """One that tries once: by itself redis-py goes on for seconds."""
    return redis.Redis.from_url(
        url,
        socket_connect_timeout=timeout_seconds,
        socket_timeout=timeout_seconds,
        retry=Retry(NoBackoff(), 0),
    )


class PostgresNeighbours(Neighbours):
    """By NOTIFY, heard on a connection of its own: those of the pool are for queries."""

    def _tell(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"NOTIFY {CHANNEL}")

    def _follow(self) -> None:
        where = {**connection.get_connection_params(), "autocommit": True, "connect_timeout": _TIMEOUT_SECONDS}
        with psycopg.connect(**where) as listening:
            listening.execute(f"LISTEN {CHANNEL}")
            while not self._stopping.is_set():
                self._found()
                for _ in listening.notifies(timeout=_LISTEN_SECONDS):
                    self._wake()


def neighbours(redis_url: str, wake: Callable[[], None]) -> Neighbours | None:
    """How this process reaches the others; None where polling is all there is: on one machine, with SQLite."""
    if redis_url:
        return RedisNeighbours(redis_url, wake)
    return PostgresNeighbours(wake) if connection.vendor == "postgresql" else None
