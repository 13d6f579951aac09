"""The server under the gateway: its socket, HTTP/1.1 and HTTP/2, TLS and a certificate that is renewed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
from pathlib import Path
from typing import Any, NamedTuple

from granian.constants import Interfaces, SSLProtocols
from granian.http import HTTP1Settings, HTTP2Settings
from granian.net import SocketHolder  # type: ignore[attr-defined]
from granian.server.embed import AsyncWorker
from granian.server.embed import Server as Embedded

from gateway import settings
from gateway.app import App
from gateway.state import Gateway

log = logging.getLogger("headworks.gateway")
# A client that multiplexes an agent's fan-out over one connection; the tenant's own limit is max_parallel_requests.
_HTTP2_STREAMS = 1_000
# HTTP/2 asks for no less (RFC 9113, 9.2).
_OLDEST_TLS = SSLProtocols.tls12


class CannotStart(Exception):
    """The message says what is wrong and what would be right."""


class Certificate(NamedTuple):
    """Files in PEM: the chain, leaf first, and its key."""

    chain: Path
    key: Path

    def stamp(self) -> tuple[tuple[int, int], ...]:
        """What changes when either file is written or replaced. Raises: OSError."""
        stats = [file.stat() for file in self]
        return tuple((stat.st_ino, stat.st_mtime_ns) for stat in stats)

    def check(self) -> None:
        """Raises: CannotStart where this is no certificate with its key."""
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.chain, self.key, password="")
        except (ssl.SSLError, OSError) as error:
            said = getattr(error, "reason", None) or error.strerror or str(error)
            raise CannotStart(
                f"{self.chain} and {self.key} are no certificate with its key: {said}; "
                f"{settings.TLS_CERT.name} takes the chain in PEM, {settings.TLS_KEY.name} its key without a password"
            ) from None


def configured_certificate() -> Certificate | None:
    """None: plain HTTP. Raises: CannotStart."""
    chain, key = settings.TLS_CERT.read(), settings.TLS_KEY.read()
    if chain is None and key is None:
        return None
    if chain is None or key is None:
        raise CannotStart(f"{settings.TLS_CERT.name} and {settings.TLS_KEY.name} go together: set both, or neither")
    certificate = Certificate(chain, key)
    certificate.check()
    return certificate


class Server(Embedded):
    """granian's embedded server on a socket of ours, of which this process is the only holder."""

    def __init__(self, app: App, listener: socket.socket, certificate: Certificate | None, **options: Any) -> None:
        chain, key = certificate or (None, None)
        super().__init__(app, ssl_cert=chain, ssl_key=key, ssl_protocol_min=_OLDEST_TLS, **options)
        self._listener = listener
        # Both workers accept while a new one takes over, the old one with the old certificate: keep that short.
        self.respawn_interval = 0

    def _init_shared_socket(self) -> None:
        # As granian's own off Linux, where the socket is made here and not in the worker.
        self._ssp = None

    def _spawn_worker(self, *args: Any, **options: Any) -> AsyncWorker:
        # A worker closes its socket when it ends, and at a new certificate the next one has begun by then.
        self._sfd = os.dup(self._listener.fileno())  # type: ignore[assignment]
        self._shd = SocketHolder(self._sfd, uds=False, backlog=self.backlog)  # type: ignore[assignment, call-arg]
        return super()._spawn_worker(*args, **options)

    async def shutdown(self, exit_code: int = 0) -> None:
        # Nothing may wait behind a worker that takes no more.
        self._listener.close()
        await super().shutdown(exit_code)  # type: ignore[no-untyped-call]

    def renew(self, certificate: Certificate) -> None:
        """Serve new connections with what the files hold now; those that are open go on to their end.

        Raises: CannotStart, and everything stays as it was.
        """
        certificate.check()
        self.build_ssl_context(certificate.chain, certificate.key, None, _OLDEST_TLS, None, [], False)
        self.reload()  # type: ignore[no-untyped-call]


async def follow_certificate(server: Server, certificate: Certificate, asked: asyncio.Event) -> None:
    """Renew when the files change, or when `asked`, until cancelled."""
    every_seconds = settings.TLS_CHECK_SECONDS.read()
    stamp = certificate.stamp()
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asked.wait(), every_seconds)
        was_asked, before = asked.is_set(), stamp
        asked.clear()
        try:
            stamp = certificate.stamp()
            if was_asked or stamp != before:
                server.renew(certificate)
                log.info("new connections get the certificate in %s", certificate.chain)
        except (OSError, CannotStart) as error:
            log.error("the certificate stays what it was: %s", error)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises: CannotStart.

    granian's own has SO_REUSEPORT, with which a second gateway would silently take half of the connections, and no
    bound on writes: here the kernel gives up clients that take nothing. Connections inherit the TCP options.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(
            address[:2],
            family=family,
            backlog=settings.LISTEN_BACKLOG.read(),
            dualstack_ipv6=family == socket.AF_INET6 and socket.has_dualstack_ipv6(),
        )
    except OSError as error:
        where = f"{host}:{port}"
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


def http_server(
    gateway: Gateway, listener: socket.socket, host: str, port: int, certificate: Certificate | None
) -> Server:
    """Ready for `serve()`. HTTP/2 by ALPN with a certificate, by prior knowledge without one; HTTP/1.1 with both."""
    return Server(
        App(gateway),
        listener,
        certificate,
        address=host,
        port=port,
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
