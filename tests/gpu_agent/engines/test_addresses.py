"""Addresses of other machines, and names that lead there the next time."""

from __future__ import annotations

import asyncio
import socket

import pytest

from gpu_agent.engines import addresses
from gpu_agent.engines.addresses import ForeignUrl, check_url
from gpu_agent.engines.keys import Key
from gpu_agent.engines.pages import EnginePages, PageUnavailable
from tests.wire.fake_control import DEADLINE_SECONDS


def own_addresses():
    """What a route to anywhere leaves by, where this machine has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return []
        return [probe.getsockname()[0]]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "localhost", *own_addresses()])
async def test_an_address_of_the_node_needs_no_name_in_the_policy(host):
    await check_url(f"http://{host}:8001", None)


@pytest.mark.parametrize("host", ["192.0.2.1", "169.254.169.254", "[2001:db8::1]", "0.0.0.0", "224.0.0.1", "a..b"])
async def test_any_other_does(host):
    with pytest.raises(ForeignUrl):
        await check_url(f"http://{host}:8001", None)
    await check_url(f"http://{host}:8001", f"http://{host}:8001")


@pytest.fixture
async def other_machine(monkeypatch):
    """A port of an address that counts as another machine's, and the heads of the requests that came."""
    is_own, came = addresses._is_own, []
    monkeypatch.setattr(addresses, "_is_own", lambda info: info[4][0] != "127.0.0.2" and is_own(info))

    async def connected(reader, writer):
        came.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.2", 0)
    yield server.sockets[0].getsockname()[1], came
    server.close()


async def test_a_name_that_leads_elsewhere_the_next_time_gets_no_key(monkeypatch, other_machine):
    port, came = other_machine
    leads_to = iter(["127.0.0.1", "127.0.0.2", "127.0.0.2"])

    def look_up(host, port, *_, **__):
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (next(leads_to), port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    url = f"http://engine.test:{port}"
    await check_url(url, None)
    pages = EnginePages(timeout_seconds=DEADLINE_SECONDS, limit_bytes=1024)
    try:
        with pytest.raises(PageUnavailable, match=r"127\.0\.0\.2 is no address of this node"):
            await pages.ask(f"{url}/v1/completions", b"{}", pages.deadline(), Key("sk-secret", True))
        assert came == []
        await pages.ask(f"{url}/v1/completions", b"{}", pages.deadline(), Key("sk-secret", False))
    finally:
        await pages.close()
    assert b"Bearer sk-secret" in came[0], "where the policy names it"
