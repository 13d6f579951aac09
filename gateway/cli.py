"""`headworks-gateway`: enrol once, follow the configuration, serve until SIGTERM, drain, exit."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import aiohttp
import uvloop
from granian.constants import Interfaces
from granian.http import HTTP1Settings, HTTP2Settings
from granian.server.embed import Server

from gateway import settings
from gateway.app import App
from gateway.state import Gateway
from wire.control_api import TargetRefused
from wire.settings import BadSetting
from wire.target import TargetClient, enrol, load_credentials

log = logging.getLogger("headworks.gateway")
_MAX_JOIN_TOKEN_CHARACTERS = 1_000


class CannotStart(Exception):
    """The message says what is missing and what would be right."""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 after a drain, 1 where the gateway cannot start; the reason is on stderr."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    _allow_many_sockets()
    _calm_collector()
    # A batch here is one request's few texts: handing them to a thread pool costs more than it saves.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        uvloop.run(serve(_arguments(argv)))
    except (BadSetting, CannotStart) as error:
        print(f"headworks-gateway: {error}", file=sys.stderr)
        return 1
    return 0


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


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="headworks-gateway", description=__doc__)
    rows = (
        (settings.CONTROL_URL, str),
        (settings.JOIN_TOKEN_FILE, Path),
        (settings.NAME, str),
        (settings.STATE_DIR, Path),
        (settings.HOST, str),
        (settings.PORT, int),
    )
    for row, kind in rows:
        option = "--" + row.name.removeprefix("HEADWORKS_GATEWAY_").lower().replace("_", "-")
        parser.add_argument(option, type=kind, default=row.read(), help=f"{row.reason} ({row.name})".replace("%", "%%"))
    return parser.parse_args(argv)


async def serve(options: argparse.Namespace) -> None:
    """Run one gateway. Raises: CannotStart."""
    await _enrol_once(options)
    client = TargetClient(
        control_url=options.control_url,
        state_dir=options.state_dir,
        on_snapshot=lambda snapshot, revision: gateway.on_snapshot(snapshot, revision),
        on_peers=lambda live_gateways: gateway.on_peers(live_gateways),
    )
    gateway = Gateway(options.state_dir, client.get)
    gateway.stream_state = lambda: (client.connected, client.persist_errors)
    client.load_last_known_good()
    server = Server(
        App(gateway),
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
    follower = asyncio.create_task(client.run(), name="configuration")
    stop = asyncio.create_task(_stop_on_signal(gateway, server), name="drain")
    try:
        log.info("serving on %s:%d", options.host, options.port)
        await server.serve()
    finally:
        for task in (follower, stop):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await gateway.close()


# A client that multiplexes an agent's fan-out over one connection; the tenant's own limit is max_parallel_requests.
_HTTP2_STREAMS = 1_000


def _http1_buffer_bytes(gateway: Gateway) -> int:
    # What is larger than this before the headers end is answered with 431 by the server itself.
    return max(64 * 1024, 2 * gateway.limits.max_header_bytes)


async def _stop_on_signal(gateway: Gateway, server: Server) -> None:
    """SIGTERM or SIGINT: /readyz turns 503, no new work, running streams end, then the server stops."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    await asked.wait()
    log.info("draining: %d requests are running", len(gateway.running))
    await gateway.drain(settings.DRAIN_SECONDS.read())
    server.stop()  # type: ignore[no-untyped-call]
    log.info("drained")


async def _enrol_once(options: argparse.Namespace) -> None:
    state_dir: Path = options.state_dir
    try:
        if load_credentials(state_dir) is not None:
            return
        await enrol(
            control_url=options.control_url,
            join_token=_join_token(options.join_token_file),
            kind="gateway",
            name=options.name or socket.gethostname().lower(),
            version=version("headworks"),
            state_dir=state_dir,
        )
    except TargetRefused as error:
        raise CannotStart(str(error)) from None
    except aiohttp.ClientError as error:
        raise CannotStart(f"the control plane at {options.control_url} does not answer: {error}") from None
    except OSError as error:
        raise CannotStart(f"{state_dir} cannot be used: {error}") from None


def _join_token(path: Path) -> str:
    try:
        token = path.read_text()[:_MAX_JOIN_TOKEN_CHARACTERS].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotStart(f"this gateway is not enrolled and its join token cannot be read: {error}") from None
    if not token:
        raise CannotStart(f"this gateway is not enrolled and {path} is empty; put a join token into it")
    return token


if __name__ == "__main__":
    sys.exit(main())
