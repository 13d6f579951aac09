"""`headworks-gateway`: enrol once, follow the configuration, serve until SIGTERM, drain, exit."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import uvloop

from gateway import settings
from gateway.batches.batches import Batches
from gateway.certificate_end import CertificateEnd
from gateway.collector import Collector, calm_collector
from gateway.push import SeriesPush
from gateway.server import (
    CannotStart,
    Certificate,
    Server,
    configured_certificate,
    follow_certificate,
    http_server,
    listen,
)
from gateway.state import Gateway, StreamState
from gateway.telling import Telling
from wire.enrolment import CannotEnrol, EnrolAgain, Enrolment, enrol_once
from wire.push import MetricPush
from wire.settings import BadSetting, check_all
from wire.spool import Spool
from wire.target import TargetClient, TargetRefused
from wire.target_options import TargetSettings, gateway_options

log = logging.getLogger("headworks.gateway")
_TARGET = TargetSettings(
    settings.CONTROL_URL, settings.JOIN_TOKEN, settings.JOIN_TOKEN_FILE, settings.NAME, settings.STATE_DIR
)


@dataclass(frozen=True)
class Options:
    """What the command line may say; the settings of the same names say what each is for."""

    enrolment: Enrolment
    host: str
    port: int


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 after a drain, 1 where the gateway cannot start or go on, 2 for a bad setting; stderr says why."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    _allow_many_sockets()
    calm_collector()
    # A batch here is one request's few texts: handing them to a thread pool costs more than it saves.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        options = _options(argv)
        check_all(settings.SETTINGS)
        return uvloop.run(serve(options))
    except (BadSetting, CannotStart, CannotEnrol, TargetRefused) as error:
        print(f"headworks-gateway: {error}", file=sys.stderr)
        return 2 if isinstance(error, BadSetting) else 1


def _allow_many_sockets() -> None:
    """A stream holds two sockets; the usual soft limit of 1,024 files ends at 500 streams, far below the hard one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _options(argv: Sequence[str] | None) -> Options:
    enrolment, more = gateway_options(
        "headworks-gateway",
        "Serve the OpenAI API in front of the fleet's engines: enrol once, follow the configuration, and on SIGTERM "
        "let what runs end.",
        _TARGET,
        (settings.HOST, settings.PORT),
        argv,
    )
    return Options(enrolment, more[settings.HOST.name], more[settings.PORT.name])


async def serve(options: Options) -> int:
    """Run one gateway; the exit status. Raises: CannotStart, CannotEnrol, TargetRefused."""
    certificate = configured_certificate()
    await enrol_once(options.enrolment)
    listener = listen(options.host, options.port)
    state_dir: Path = options.enrolment.state_dir
    client = TargetClient(
        control_url=options.enrolment.control_url,
        state_dir=state_dir,
        on_snapshot=lambda snapshot, revision: gateway.on_snapshot(snapshot, revision),
        on_peers=lambda live_gateways: gateway.on_peers(live_gateways),
        enrol_again=EnrolAgain(options.enrolment),
    )
    gateway = Gateway(state_dir, client.get)
    gateway.stream_state = lambda: StreamState(client.connected, client.persist_errors, client.last_error)
    if certificate is not None:
        gateway.certificate_end = CertificateEnd(certificate)
    client.load_last_known_good()
    server = http_server(gateway, listener, options.host, options.port, certificate)
    serving = asyncio.create_task(server.serve(), name="server")
    follower = asyncio.create_task(client.run(), name="configuration")
    series = _series_push(gateway, client, options.enrolment)
    pushing = asyncio.create_task(series.run(), name="metrics")
    telling = Telling(client, gateway.decisions, gateway.sketches, gateway.feedback_events)
    told = asyncio.create_task(telling.run(), name="decisions")
    gateway.batches = batches = Batches(gateway, client)
    running_lines = asyncio.create_task(batches.runner.run(), name="lines of batches")
    stop = asyncio.create_task(_until_asked_to_stop(), name="signal")
    renewing = asyncio.create_task(_renew(server, certificate), name="certificate")
    collecting = asyncio.create_task(Collector(gateway.running, time.monotonic).run(), name="collector")
    try:
        scheme = "" if certificate is None else "https://"
        log.info("gateway %s serves on %s%s:%d", options.enrolment.name, scheme, options.host, options.port)
        await asyncio.wait((serving, follower, stop), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            raise CannotStart(f"the server on {options.host}:{options.port} ended: {serving.exception()}")
        if follower.done():
            # Without it new limits, blocked keys and cordons would never arrive again.
            log.error("the configuration is no longer followed", exc_info=follower.exception())
        batches.runner.drain()
        await _drain(gateway, server, serving)
        for task in (pushing, told, running_lines):
            task.cancel()
        await asyncio.wait((pushing, told, running_lines))
        await asyncio.gather(series.end(), telling.end(), batches.runner.end())
        return 1 if follower.done() else 0
    finally:
        tasks = (pushing, told, running_lines, follower, stop, renewing, collecting, serving)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await gateway.close()


def _series_push(gateway: Gateway, client: TargetClient, enrolment: Enrolment) -> SeriesPush:
    spool = Spool(enrolment.state_dir / "metrics.spool", limit_bytes=settings.SPOOL_BYTES.read())
    push = MetricPush(client, spool)
    return SeriesPush(enrolment.name, gateway, push, settings.PUSH_INTERVAL_SECONDS.read())


async def _renew(server: Server, certificate: Certificate | None) -> None:
    """SIGHUP asks for it at once. Without a certificate the signal ends the process, as it does any other."""
    if certificate is None:
        return
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, asked.set)
    await follow_certificate(server, certificate, asked)


async def _until_asked_to_stop() -> None:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    await asked.wait()


async def _drain(gateway: Gateway, server: Server, serving: asyncio.Task[None]) -> None:
    """/readyz turns 503, no new work, running streams end or are cut, then the server stops."""
    log.info("draining: %d requests are running", len(gateway.running))
    await gateway.drain(settings.DRAIN_SECONDS.read())
    server.stop()  # type: ignore[no-untyped-call]
    # The server waits for its connections, and a client that reads nothing never ends its own: leave with it open.
    await asyncio.wait((serving,), timeout=gateway.limits.last_send_seconds)
    log.info("drained")


if __name__ == "__main__":
    sys.exit(main())
