"""Web processes wake each other through Redis, where there is one. Without it, or with it away, they poll."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import redis

log = logging.getLogger(__name__)

CHANNEL = "headworks:config"
_TIMEOUT_SECONDS = 2.0
_RETRY_SECONDS = 5.0
_LISTEN_SECONDS = 1.0


class Neighbours:
    """`wake` is called when another process has written or published."""

    def __init__(self, redis_url: str, wake: Callable[[], None]) -> None:
        self._url, self._wake = redis_url, wake
        self._stopping = threading.Event()
        self._away = False
        self._client: redis.Redis | None = None

    def start(self) -> None:
        if not self._url:
            return
        self._stopping.clear()
        self._client = redis.Redis.from_url(
            self._url, socket_connect_timeout=_TIMEOUT_SECONDS, socket_timeout=_TIMEOUT_SECONDS
        )
        threading.Thread(target=self._listen, name="config-neighbours", daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()

    def tell(self) -> None:
        """Wake the other processes; they find out by polling if this fails."""
        if self._client is None or self._away:
            return
        try:
            self._client.publish(CHANNEL, b"")
        except redis.RedisError as error:
            self._lost(error)

    def _listen(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except redis.RedisError as error:
                self._lost(error)
                self._stopping.wait(_RETRY_SECONDS)

    def _follow(self) -> None:
        assert self._client is not None  # noqa: S101 - made by start, before this thread
        with self._client.pubsub(ignore_subscribe_messages=True) as channel:  # type: ignore[no-untyped-call]
            channel.subscribe(CHANNEL)
            self._found()
            while not self._stopping.is_set():
                if channel.get_message(timeout=_LISTEN_SECONDS) is not None:
                    self._wake()

    def _lost(self, error: redis.RedisError) -> None:
        if not self._away:
            log.warning(
                "Redis does not answer (%s); web processes find each other's writes by polling", type(error).__name__
            )
        self._away = True

    def _found(self) -> None:
        if self._away:
            log.info("Redis answers again")
        self._away = False
