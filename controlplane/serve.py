"""The ASGI server of the web process: one process, HTTP/1.1 and HTTP/2, static files beside Django."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvloop
from granian.constants import Interfaces
from granian.server.embed import Server

# Linux takes no more by default (net.core.somaxconn was 128 before 5.4).
_MAX_BACKLOG = 1024
# Requests that run when the end is asked for may end by themselves for this long. Supervisors, ours too, kill what is
# still there after 10 seconds.
STOP_SECONDS_MAX = 8.0

log = logging.getLogger(__name__)


class CannotListen(OSError):
    """The address is not one of this machine."""


class PortTaken(CannotListen):
    """Something listens there already; the server itself would share the port and not notice."""


def check_port_free(host: str, port: int) -> None:
    """`host` is an address, not a name. Raises CannotListen, PortTaken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            kind = CannotListen if error.errno == errno.EADDRNOTAVAIL else PortTaken
            raise kind(f"cannot listen on {host}:{port}: {error.strerror}") from error


@dataclass(frozen=True)
class Listener:
    """Where to listen, and how many connections to hold at once; every config stream holds one."""

    host: str
    port: int
    max_connections: int


def serve(application: object, listener: Listener, static_root: Path, before_stop: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT. `before_stop` ends what would keep the server waiting. Raises CannotListen.

    The process ends with what is still open after STOP_SECONDS_MAX: a client that never sends the rest of its body
    would hold it for ever.
    """
    check_port_free(listener.host, listener.port)

    async def main() -> None:
        server = Server(
            application,
            address=listener.host,
            port=listener.port,
            interface=Interfaces.ASGI,
            backlog=min(listener.max_connections, _MAX_BACKLOG),
            # Connections beyond this wait unanswered; the server's own default is the backlog.
            backpressure=listener.max_connections,
            log_access=False,
            # Names of static files carry their content's hash.
            static_path_route=["/static"],
            static_path_mount=[static_root],
            static_path_expires=31_536_000,
        )

        def stop() -> None:
            before_stop()
            server.stop()  # type: ignore[no-untyped-call]
            loop.call_later(STOP_SECONDS_MAX, _give_up)

        loop = asyncio.get_running_loop()
        for end in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(end, stop)
        await server.serve()

    uvloop.run(main())


def _give_up() -> None:
    log.warning("requests that did not end within %g s are cut off", STOP_SECONDS_MAX)
    # Not sys.exit, which would wait for the threads of these requests.
    os._exit(0)
