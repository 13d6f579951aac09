"""A Redis that dies while tasks run ends no worker."""

from __future__ import annotations

import pytest
from kombu.connection import Connection

from controlplane import redis_broker


@pytest.fixture
def connection() -> Connection:
    redis_broker.use()
    return Connection("redis://127.0.0.1:1/0")


def test_redis_is_reached_by_it(connection: Connection) -> None:
    assert isinstance(connection.transport, redis_broker.Transport)


def test_giving_tasks_back_over_a_connection_that_is_gone_is_a_lost_connection(connection: Connection) -> None:
    transport = connection.transport
    channel = transport.Channel.__new__(transport.Channel)
    channel.connection = transport
    transport.client = None
    with pytest.raises(transport.connection_errors):
        channel._connparams()
