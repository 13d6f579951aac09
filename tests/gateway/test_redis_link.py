"""Which addresses of a Redis are taken, and what is said of one that is not there."""

from __future__ import annotations

import asyncio
import ssl

import pytest
from redis.exceptions import AuthenticationError, ConnectionError

from gateway import settings
from gateway.redis_link import RedisLink
from tests.gateway.quota.gateways import unix_ms, until
from wire.settings import BadSetting


@pytest.mark.parametrize(
    "url",
    [
        "redis://redis:6379/1",
        "rediss://user:word@redis.example:6380/2?ssl_ca_certs=/ca.pem",
        "redis://:word@[::1]:6379",
    ],
)
def test_an_address_with_and_without_tls_and_password_is_taken(url: str):
    assert settings.REDIS_URL.read({settings.REDIS_URL.name: url}) == url


@pytest.mark.parametrize(
    "url",
    ["http://redis:6379", "redis://", "redis:6379", "redis://secret-word@redis:99999", "redis://h/0?db=secret-word"],
)
def test_another_address_is_refused_without_being_shown(url: str):
    with pytest.raises(BadSetting, match="give redis://") as refused:
        settings.REDIS_URL.read({settings.REDIS_URL.name: url})
    assert "secret-word" not in str(refused.value)


async def test_without_an_address_nothing_is_looked_for():
    link = RedisLink("", 0.05, unix_ms)
    link.start()
    assert (link.client, link.alive) == (None, False)
    await link.close()


async def test_a_redis_that_cannot_be_used_is_told_of_once_and_without_its_address(caplog: pytest.LogCaptureFixture):
    looks = 0

    def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal looks
        looks += 1
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    link = RedisLink(f"redis://name:secret-word@127.0.0.1:{port}/0", 0.05, unix_ms)
    link.start()
    await until(lambda: looks >= 3, "it to be looked for again")
    assert not link.alive
    assert len(caplog.records) == 1
    for said in (link.error, caplog.text):
        assert str(port) not in said
        assert "secret-word" not in said
    await link.close()
    server.close()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TimeoutError(), "no answer within 50 ms"),
        (ConnectionError("Error 111 connecting to 10.0.0.1:6379"), "ConnectionError"),
        (AuthenticationError("invalid username-password pair"), "AuthenticationError"),
        (ssl.SSLError(1, "certificate verify failed"), "certificate verify failed"),
    ],
)
async def test_what_is_wrong_is_said_in_words_that_name_nothing_secret(error: Exception, said: str):
    link = RedisLink("redis://10.0.0.1:6379", 0.05, unix_ms)
    lost = []
    link.uses("return 1", lambda: None, lambda: lost.append(link.lost_at_ms))
    link.alive = True
    for _ in range(3):
        link.failed(error)
    await asyncio.sleep(0)
    assert link.error == said
    assert len(lost) == 1
    await link.close()
