"""The ASGI server of the web process: one process, HTTP/1.1 and HTTP/2, static files beside Django."""

from __future__ import annotations

import asyncio
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


class PortTaken(OSError):
    """Something listens there already; the server itself would share the port and not notice."""


def check_port_free(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise PortTaken(
                f"cannot listen on {host}:{port}: {error.strerror}; set HEADWORKS_PORT to a free port"
            ) from error


@dataclass(frozen=True)
class Listener:
    """Where to listen, and how many connections to hold at once; every config stream holds one."""

    host: str
    port: int
    max_connections: int


def serve(application: object, listener: Listener, static_root: Path, before_stop: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT. `before_stop` ends what would keep the server waiting. Raises PortTaken."""
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

        loop = asyncio.get_running_loop()
        for end in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(end, stop)
        await server.serve()

    uvloop.run(main())
