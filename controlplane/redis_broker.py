"""Kombu's Redis transport, which outlives a Redis that dies while tasks run.

A worker's first answer to a lost connection is to close its channels, which give unfinished tasks back. Where the
transport is gone by then, kombu 5.7 fails with an AttributeError that nobody catches, and the worker ends. Here that is
the lost connection which it is: the worker connects anew, the tasks go on in their threads, and Redis gives those out
again that nobody has acknowledged (visibility timeout).
"""

from __future__ import annotations

from typing import Any

from kombu.transport import TRANSPORT_ALIASES, redis
from redis.exceptions import ConnectionError as ConnectionLost


class _Channel(redis.Channel):
    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        if self.connection.client is None:
            raise ConnectionLost("the connection to Redis is closed")
        params: dict[str, Any] = super()._connparams(asynchronous=asynchronous)  # type: ignore[no-untyped-call]
        return params


class Transport(redis.Transport):
    Channel = _Channel


def use() -> None:
    """From now on addresses redis:// and rediss:// are reached by it."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:Transport"
