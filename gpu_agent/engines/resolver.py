"""The addresses of engines that are configured by name, where DNS may not answer."""

from __future__ import annotations

import socket
from collections import defaultdict
from functools import partial
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from gpu_agent.host.apart import Apart, NoAnswer

# Longer than a look waits: the next one joins a search that is under way.
_RESOLVE_SECONDS = 30.0


class EngineResolver(AbstractResolver):
    """A thread for each name and port, of which aiohttp asks for one at a time.

    The event loop's own few threads write spools, and must not wait for DNS.
    """

    def __init__(self) -> None:
        self._names: defaultdict[tuple[str, int], Apart[list[Any]]] = defaultdict(lambda: Apart("engine-dns"))

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Raises: OSError, UnicodeError for what cannot be a name."""
        ask = partial(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
        try:
            found = await self._names[host, port].run(ask, _RESOLVE_SECONDS)
        except NoAnswer as error:
            raise OSError(None, f"DNS: {error}") from error
        return [
            ResolveResult(
                hostname=host,
                host=address[0],
                port=address[1],
                family=of_family,
                proto=proto,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for of_family, _, proto, _, address in found
        ]

    async def close(self) -> None:
        """Nothing is held open."""
