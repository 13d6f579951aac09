"""`headworks-gateway`: enrol once, follow the configuration, serve until SIGTERM, drain, exit."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from granian.constants import Interfaces
from granian.http import HTTP1Settings, HTTP2Settings
from granian.net import SocketHolder  # type: ignore[attr-defined]
from granian.server.embed import Server

from gateway import settings
from gateway.app import App
from gateway.push import SeriesPush
from gateway.state import Gateway, StreamState
from gateway.telling import Telling
from wire.enrolment import CannotEnrol, EnrolAgain, Enrolment, enrol_once
from wire.push import MetricPush
from wire.settings import BadSetting, check_all
from wire.spool import Spool
from wire.target import TargetClient, TargetRefused
from wire.target_options import TargetSettings, gateway_options

log = logging.getLogger("headworks.gateway")
# A client that multiplexes an agent's fan-out over one connection; the tenant's own limit is max_parallel_requests.
_HTTP2_STREAMS = 1_000
_TARGET = TargetSettings(
    settings.CONTROL_URL, settings.JOIN_TOKEN, settings.JOIN_TOKEN_FILE, settings.NAME, settings.STATE_DIR
)


class CannotStart(Exception):
    """The message says what is wrong and what would be right."""


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
    _calm_collector()
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


def _calm_collector() -> None:
    """What is imported lives for ever: leave it out of every collection, and collect less often.

    A full collection walks every module's objects while requests wait.
    """
    gc.freeze()
    gc.set_threshold(50_000, 50, 50)


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
    await enrol_once(options.enrolment)
    listener = listen(options)
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
    client.load_last_known_good()
    server = _server(gateway, listener, options)
    serving = asyncio.create_task(server.serve(), name="server")
    follower = asyncio.create_task(client.run(), name="configuration")
    series = _series_push(gateway, client, options.enrolment)
    pushing = asyncio.create_task(series.run(), name="metrics")
    telling = Telling(client, gateway.decisions, gateway.sketches)
    told = asyncio.create_task(telling.run(), name="decisions")
    stop = asyncio.create_task(_until_asked_to_stop(), name="signal")
    try:
        log.info("gateway %s serves on %s:%d", options.enrolment.name, options.host, options.port)
        await asyncio.wait((serving, follower, stop), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            raise CannotStart(f"the server on {options.host}:{options.port} ended: {serving.exception()}")
        if follower.done():
            # Without it new limits, blocked keys and cordons would never arrive again.
            log.error("the configuration is no longer followed", exc_info=follower.exception())
        await _drain(gateway, server, serving)
        for task in (pushing, told):
            task.cancel()
        await asyncio.wait((pushing, told))
        await asyncio.gather(series.end(), telling.end())
        return 1 if follower.done() else 0
    finally:
        tasks = (pushing, told, follower, stop, serving)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await gateway.close()


def _series_push(gateway: Gateway, client: TargetClient, enrolment: Enrolment) -> SeriesPush:
    spool = Spool(enrolment.state_dir / "metrics.spool", limit_bytes=settings.SPOOL_BYTES.read())
    push = MetricPush(client, spool)
    return SeriesPush(enrolment.name, gateway, push, settings.PUSH_INTERVAL_SECONDS.read())


class _Server(Server):
    """granian's embedded server on a socket of ours, of which this process is the only holder."""

    def __init__(self, app: App, listener: socket.socket, **options: Any) -> None:
        super().__init__(app, **options)
        self._listener = listener

    def _init_shared_socket(self) -> None:
        # As granian's own off Linux, where the socket is made here and not in the worker.
        self._ssp, self._sfd = None, self._listener.detach()  # type: ignore[assignment]
        self._shd = SocketHolder(self._sfd, uds=False, backlog=self.backlog)  # type: ignore[assignment, call-arg]


def listen(options: Options) -> socket.socket:
    """A listening socket. Raises: CannotStart.

    granian's own has SO_REUSEPORT, with which a second gateway would silently take half of the connections, and no
    bound on writes: here the kernel gives up clients that take nothing. Connections inherit the TCP options.
    """
    try:
        family, *_, address = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(
            address[:2],
            family=family,
            backlog=settings.LISTEN_BACKLOG.read(),
            dualstack_ipv6=family == socket.AF_INET6 and socket.has_dualstack_ipv6(),
        )
    except OSError as error:
        where = f"{options.host}:{options.port}"
        if error.errno == errno.EADDRINUSE:
            message = f"{where} is in use by another process; end that one, or set {settings.PORT.name} to a free port"
            raise CannotStart(message) from error
        raise CannotStart(f"cannot listen on {where}: {error.strerror}") from error
    # A token is sent when it is there, not when a packet is full.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stalled_ms = int(settings.STALLED_CLIENT_SECONDS.read() * 1000)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stalled_ms)
    listener.setblocking(False)
    return listener


def _server(gateway: Gateway, listener: socket.socket, options: Options) -> Server:
    return _Server(
        App(gateway),
        listener,
        address=options.host,
        port=options.port,
        interface=Interfaces.ASGINL,
        websockets=False,
        log_enabled=False,
        backlog=settings.LISTEN_BACKLOG.read(),
        # Granian's own default is the backlog: beyond it, even /healthz would wait for a stream to end.
        backpressure=settings.MAX_CONNECTIONS.read(),
        http1_settings=HTTP1Settings(max_buffer_size=_http1_buffer_bytes(gateway)),
        http2_settings=HTTP2Settings(
            max_headers_size=2 * gateway.limits.max_header_bytes, max_concurrent_streams=_HTTP2_STREAMS
        ),
    )


def _http1_buffer_bytes(gateway: Gateway) -> int:
    # What is larger than this before the headers end is answered with 431 by the server itself.
    return max(64 * 1024, 2 * gateway.limits.max_header_bytes)


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
