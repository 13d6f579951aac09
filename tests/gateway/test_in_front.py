"""Streams through the proxies of docs/in-front.md, with their configurations as they stand there."""

from __future__ import annotations

import asyncio
import json
import pwd
import re
import statistics
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from aiohttp import web

from tests.gateway.certificates import OwnCertificate
from tests.gateway.fleet import (
    DONE,
    KEYS,
    RunningGateway,
    ScriptedEngine,
    chat,
    delta,
    event,
    running_gateway,
    shared_configuration,
)
from tests.gateway.http2 import Http2Connection, http2_connection
from tests.services import Process, free_port, service_binary

pytestmark = [pytest.mark.own_servers, pytest.mark.asyncio(loop_scope="module")]
PAGE = Path(__file__).parents[2] / "docs" / "in-front.md"
PATH = "/v1/chat/completions"
STREAM = json.dumps(chat(stream=True)).encode()
EVENTS = 30
PAUSE_SECONDS = 0.05


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def adapted(snippet: str, *changes: tuple[str, str]) -> str:
    """The page's own configuration, with the addresses and files of this test."""
    for page, here in changes:
        assert page in snippet, f"the page has no {page!r} any more"
        snippet = snippet.replace(page, here)
    return snippet


def nginx(folder: Path, certificate: OwnCertificate, gateway_port: int, port: int) -> list[str | Path]:
    [snippet] = blocks("nginx")
    own = f"pid {folder}/nginx.pid;\nuser {pwd.getpwuid(folder.stat().st_uid).pw_name};\n"
    temporary = [f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")]
    text = adapted(
        snippet,
        ("http {", f"http {{ access_log off; {' '.join(temporary)}"),
        ("worker_processes auto", "worker_processes 1"),
        ("10.0.0.11:8400", f"127.0.0.1:{gateway_port}"),
        ("listen 443 ssl http2", f"listen 127.0.0.1:{port} ssl http2"),
        ("/etc/ssl/llm.pem", str(certificate.chain)),
        ("/etc/ssl/llm.key", str(certificate.key)),
    )
    file = folder / "nginx.conf"
    file.write_text(own + text)
    return [service_binary("nginx"), "-c", file, "-p", folder, "-e", "stderr", "-g", "daemon off;"]


def haproxy(folder: Path, certificate: OwnCertificate, gateway_port: int, port: int) -> list[str | Path]:
    [snippet] = blocks("haproxy")
    both = folder / "both.pem"
    both.write_bytes(certificate.chain.read_bytes() + certificate.key.read_bytes())
    text = adapted(
        snippet,
        ("maxconn 30000", "maxconn 500"),
        ("10.0.0.11:8400", f"127.0.0.1:{gateway_port}"),
        ("bind 0.0.0.0:443", f"bind 127.0.0.1:{port}"),
        ("/etc/haproxy/llm.pem", str(both)),
    )
    file = folder / "haproxy.cfg"
    file.write_text(text)
    return [service_binary("haproxy"), "-db", "-f", file]


@dataclass
class Front:
    """A gateway behind a proxy, and an engine behind that."""

    gateway: RunningGateway
    engine: ScriptedEngine
    certificate: OwnCertificate
    port: int
    sent_at: list[float] = field(default_factory=list)

    def ask(self, connection: Http2Connection, body: bytes = STREAM, **headers: str) -> Any:
        return connection.ask(PATH, body, KEYS["alpha"], headers)

    async def left(self) -> float:
        """How many clients the gateway has seen leave."""
        return await self.gateway.metric("headworks_gateway_requests_total", outcome="cancelled", reason="client_left")

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """HTTP/1.1, with one request sent."""
        trusted = self.certificate.trusted()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=trusted)
        head = f"POST {PATH} HTTP/1.1\r\nHost: llm.example\r\nAuthorization: Bearer {KEYS['alpha']}\r\n"
        writer.write(f"{head}Content-Type: application/json\r\nContent-Length: {len(STREAM)}\r\n\r\n".encode() + STREAM)
        return reader, writer

    async def drip(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        """An event every `PAUSE_SECONDS`."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number in range(EVENTS):
            self.sent_at.append(time.monotonic())
            await response.write(event(delta(f"<{number}>")))
            await asyncio.sleep(PAUSE_SECONDS)
        await response.write(DONE)
        return response


@pytest_asyncio.fixture(
    params=[nginx, haproxy], ids=lambda proxy: str(proxy.__name__), scope="module", loop_scope="module"
)
async def front(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Front]:
    argv_of: Callable[..., list[str | Path]] = request.param
    folder = tmp_path_factory.mktemp("front")
    certificate, port, engine = OwnCertificate(folder), free_port(), ScriptedEngine()
    await engine.start()
    async with running_gateway(folder, shared_configuration(engine.url)) as gateway:
        argv = argv_of(folder, certificate, gateway.port, port)
        with Process(argv, log=folder / "proxy.log") as proxy:
            await asyncio.to_thread(proxy.wait_for_port, port)
            front = Front(gateway, engine, certificate, port)
            await gateway.until(lambda: passes(front), True, "the proxy to reach the gateway")
            yield front
    await engine.stop()


async def passes(front: Front) -> bool:
    async with http2_connection(front.port, front.certificate.trusted()) as connection:
        stream = front.ask(connection)
        await stream.end()
        return bool(stream.status == 200)


async def test_each_event_arrives_when_it_is_sent(front: Front):
    front.engine.behave = front.drip
    arrived: list[float] = []
    async with http2_connection(front.port, front.certificate.trusted()) as connection:
        stream = front.ask(connection)
        for number in range(EVENTS):
            await stream.until(f"<{number}>".encode())
            arrived.append(time.monotonic())
        assert (await stream.end()).endswith(DONE)
    delays = [came - sent for came, sent in zip(arrived, front.sent_at, strict=True)]
    assert statistics.median(delays) < PAUSE_SECONDS / 2
    assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"


async def test_an_event_leaves_without_the_next_one(front: Front):
    """Each is sent only when its forerunner has arrived: whatever held one back would end this for ever."""
    turn = asyncio.Semaphore(1)

    async def in_turn(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number in range(EVENTS):
            await turn.acquire()
            await response.write(event(delta(f"<{number}>")))
        return response

    front.engine.behave = in_turn
    reader, writer = await front.connect()
    for number in range(EVENTS):
        await asyncio.wait_for(reader.readuntil(f"<{number}>".encode()), 15)
        turn.release()
    writer.close()


@pytest.mark.parametrize("behaviour", ["silence", "one_token_then_silence"])
@pytest.mark.parametrize("version", ["1.1", "2"])
async def test_leaving_the_proxy_frees_the_engine(front: Front, version: str, behaviour: str):
    front.engine.behave = getattr(front.engine, behaviour)
    before = len(front.engine.closed_at)
    left_before = await front.left()
    front.engine.arrived.clear()
    if version == "1.1":
        reader, writer = await front.connect()
        await front.engine.arrived.wait()
        if behaviour != "silence":
            await asyncio.wait_for(reader.readuntil(b"first"), 15)
        writer.transport.abort()
        await front.gateway.until_left(front.engine)
    else:
        async with http2_connection(front.port, front.certificate.trusted()) as connection:
            stream = front.ask(connection)
            await front.engine.arrived.wait()
            if behaviour != "silence":
                await stream.until(b"first")
            stream.reset()
            await front.gateway.until_left(front.engine)
    assert len(front.engine.closed_at) == before + 1
    await front.gateway.until(front.left, left_before + 1, "the gateway to count it")


async def test_long_bodies_and_headers_pass(front: Front):
    body = json.dumps({"model": "none", "messages": [{"role": "user", "content": "x" * (7 * 2**20)}]}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port, ssl=front.certificate.trusted())
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: llm.example\r\nAuthorization: Bearer {KEYS['alpha']}\r\nX-Long: {'h' * 12_000}"
    )
    writer.write(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    await asyncio.wait_for(reader.readuntil(b'"code":"model_not_found"'), 30)
    writer.close()


async def test_the_metrics_page_stays_inside(front: Front):
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port, ssl=front.certificate.trusted())
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: llm.example\r\nConnection: close\r\n\r\n")
    assert (await reader.readline()).split()[1] == b"404"
    writer.close()


async def test_what_cannot_be_run_here_is_yaml_at_least():
    documents = [document for block in blocks("yaml") for document in yaml.safe_load_all(block)]
    assert {document.get("kind") for document in documents} == {None, "Ingress", "ConfigMap", "HTTPRoute"}
