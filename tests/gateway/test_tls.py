"""HTTP/2 and HTTP/1.1 over TLS, and a certificate that is renewed under running streams."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.certificate_end import ends_at
from gateway.server import Certificate
from tests.gateway.certificates import OwnCertificate
from tests.gateway.fleet import (
    DONE,
    KEYS,
    RunningGateway,
    ScriptedEngine,
    chat,
    configuration,
    delta,
    event,
    running_gateway,
)
from tests.gateway.http2 import http2_connection
from tests.services import service_binary

CHECK = "HEADWORKS_GATEWAY_TLS_CHECK_SECONDS"
PATH = "/v1/chat/completions"
STREAM = json.dumps(chat(stream=True)).encode()


@pytest.fixture
def certificate(tmp_path: Path) -> OwnCertificate:
    return OwnCertificate(tmp_path)


@pytest.fixture
async def secure(engine: ScriptedEngine, certificate: OwnCertificate, tmp_path: Path) -> AsyncIterator[RunningGateway]:
    environment = {**certificate.environment, CHECK: "0.1"}
    trusted = certificate.trusted()
    async with running_gateway(tmp_path, configuration(engine.url), environment, tls=trusted) as gateway:
        yield gateway


async def serves(gateway: RunningGateway, trusted: ssl.SSLContext) -> bool:
    """Whether a new connection gets the certificate that is `trusted`."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.port, ssl=trusted)
    except (ssl.SSLCertVerificationError, ConnectionError):
        # A handshake that had begun at the worker with the old certificate when that one ended.
        return False
    writer.close()
    return True


async def curl(gateway: RunningGateway, certificate: OwnCertificate) -> asyncio.subprocess.Process:
    """Streams over HTTP/2 to its stdout, and says at last which version it was."""
    trusted = ["--cacert", str(certificate.chain)]
    argv = [str(service_binary("curl")), "-sSN", "--http2", *trusted, "-d", STREAM.decode()]
    argv += ["-H", f"Authorization: Bearer {KEYS['alpha']}", "-w", "%{http_version}", gateway.url + PATH]
    return await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE)


async def test_a_stream_over_http2_is_what_the_engine_said(
    secure: RunningGateway, engine: ScriptedEngine, certificate: OwnCertificate
):
    async with http2_connection(secure.port, certificate.trusted()) as connection:
        stream = connection.ask(PATH, STREAM, KEYS["alpha"])
        assert await stream.end() == event(delta("a")) + event(delta("b")) + DONE
    assert stream.status == 200
    assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert "connection" not in stream.headers


async def test_http_1_1_is_served_too_and_plain_http_is_not(secure: RunningGateway):
    assert (await secure.call(chat()))[0] == 200
    reader, writer = await asyncio.open_connection("127.0.0.1", secure.port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: g\r\n\r\n")
    assert b"200" not in await reader.read()
    writer.close()


async def test_curl_streams_over_http2(secure: RunningGateway, certificate: OwnCertificate):
    said, _ = await (await curl(secure, certificate)).communicate()
    assert said == event(delta("a")) + event(delta("b")) + DONE + b"2"


async def test_a_stream_that_is_reset_leaves_the_others_of_its_connection_alone(
    secure: RunningGateway, engine: ScriptedEngine, certificate: OwnCertificate
):
    engine.behave = engine.one_token_then_silence
    async with http2_connection(secure.port, certificate.trusted()) as connection:
        streams = [connection.ask(PATH, STREAM, KEYS["alpha"]) for _ in range(3)]
        for stream in streams:
            await stream.until(b"first")
        streams[1].reset()

        async def open_requests() -> int:
            return engine.open_requests

        await secure.until(open_requests, 2, "the engine to be left by one")
        engine.release.set()
        for stream in (streams[0], streams[2]):
            assert (await stream.end()).endswith(DONE)
            assert not stream.was_reset


async def test_the_end_of_the_certificate_is_among_the_metrics(secure: RunningGateway, certificate: OwnCertificate):
    told = await secure.metric("headworks_gateway_certificate_expiry_time_seconds")
    assert told == ends_at(Certificate(certificate.chain, certificate.key)) > time.time()


async def test_a_new_certificate_serves_new_connections_and_running_streams_end(
    secure: RunningGateway, engine: ScriptedEngine, certificate: OwnCertificate
):
    engine.behave = engine.one_token_then_silence
    old = certificate.trusted()
    stream = await curl(secure, certificate)
    assert stream.stdout is not None
    await stream.stdout.readuntil(b"\n\n")
    certificate.write()
    new = certificate.trusted()

    async def served() -> tuple[bool, bool]:
        return await serves(secure, new), await serves(secure, old)

    await secure.until(served, (True, False), "the new certificate alone to be served")
    engine.release.set()
    assert (await stream.stdout.read()).endswith(DONE + b"2")
    certificate.write()
    newest = certificate.trusted()
    await secure.until(lambda: serves(secure, newest), True, "a second renewal")


async def test_a_pair_that_does_not_match_is_not_taken_and_sighup_looks_at_once(
    engine: ScriptedEngine, certificate: OwnCertificate, tmp_path: Path
):
    environment = {**certificate.environment, CHECK: "3600"}
    old = certificate.trusted()
    async with running_gateway(tmp_path, configuration(engine.url), environment, tls=old) as gateway:
        key = certificate.key.read_bytes()
        certificate.write()
        fitting = certificate.key.read_bytes()
        certificate.key.write_bytes(key)
        os.kill(gateway.process.pid, signal.SIGHUP)

        async def log_says() -> bool:
            return "the certificate stays what it was" in gateway.process.log_tail()

        await gateway.until(log_says, True, "the log to say so")
        assert await serves(gateway, old)
        certificate.key.write_bytes(fitting)
        new = certificate.trusted()
        os.kill(gateway.process.pid, signal.SIGHUP)
        await gateway.until(lambda: serves(gateway, new), True, "the new certificate")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("CERT",), "HEADWORKS_GATEWAY_TLS_CERT and HEADWORKS_GATEWAY_TLS_KEY go together: set both, or neither"),
        (("CERT", "KEY"), "are no certificate with its key"),
    ],
)
def test_a_half_or_broken_pair_stops_the_start_with_a_word(tmp_path: Path, given: tuple[str, ...], said: str):
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    environment = {**os.environ, **{f"HEADWORKS_GATEWAY_TLS_{name}": str(broken) for name in given}}
    argv = [sys.executable, "-m", "gateway.cli", "--control-url", "http://127.0.0.1:9", "--state-dir", str(tmp_path)]
    ended = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=30)
    assert ended.returncode == 1
    assert said in ended.stderr
