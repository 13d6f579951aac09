"""Where each of the demo's processes listens."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from controlplane.demo.plan import ENGINES
from controlplane.serve import check_port_free

# The highest port follows the first by less than 20 (`Ports.following`).
FIRST_PORT_MAX = 65_500
# Below the ports that Linux gives to outgoing connections, one of which could take a port between probe and use.
_QUIET_PORTS = range(20_000, 32_000)


def free_port() -> int:
    while True:
        port = secrets.choice(_QUIET_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@dataclass
class Ports:
    """All on 127.0.0.1."""

    web: int
    gateway: int
    receiver: int
    engines: dict[str, int]

    @classmethod
    def following(cls, first: int) -> Ports:
        return cls(first, first + 1, first + 2, {name: first + 10 + index for index, name in enumerate(ENGINES)})

    @classmethod
    def free(cls) -> Ports:
        return cls(free_port(), free_port(), free_port(), {name: free_port() for name in ENGINES})

    def __iter__(self) -> Iterator[int]:
        yield from (self.web, self.gateway, self.receiver, *self.engines.values())

    def check_free(self) -> None:
        """Raises PortTaken."""
        for port in self:
            check_port_free("127.0.0.1", port)
