"""TCP sockets of this network namespace, read as they stream by. Source: Documentation/networking/proc_net_tcp.rst."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

_LISTEN = b"0A"
_STATES = {b"01": "established", b"03": "syn_recv", b"06": "time_wait", b"08": "close_wait"}
STATES = (*_STATES.values(), "backlog")
# Some 150 bytes a socket: more than a million of them is no table that a node can be judged by.
_LIMIT_BYTES = 150 << 20


class TooManySockets(Exception):
    """A table that is longer than what is read of one."""


@dataclass
class PortSockets:
    """Of one local port: connections by state, and the inodes of the sockets that listen on it.

    The state `backlog`: connections that no one has accepted yet.
    """

    connections: Counter[str] = field(default_factory=Counter)
    listening: set[str] = field(default_factory=set)


@dataclass
class Sockets:
    """`by_port`: of the ports that were asked for. `ephemeral_ports`: local ports in use of the ephemeral range."""

    by_port: dict[int, PortSockets]
    ephemeral_ports: int


def read_sockets(proc: Path, ports: Collection[int], ephemeral: range) -> Sockets:
    """Raises: OSError where there is no table of IPv4 sockets, TooManySockets."""
    by_port = {port: PortSockets() for port in ports}
    used: set[int] = set()
    _scan(proc / "net/tcp", by_port, used, ephemeral)
    # Absent where IPv6 is off.
    if (ipv6 := proc / "net/tcp6").exists():
        _scan(ipv6, by_port, used, ephemeral)
    return Sockets(by_port, len(used))


def _scan(table: Path, by_port: dict[int, PortSockets], used: set[int], ephemeral: range) -> None:
    read_bytes = 0
    with table.open("rb") as rows:
        next(rows, None)
        for row in rows:
            read_bytes += len(row)
            if read_bytes > _LIMIT_BYTES:
                raise TooManySockets(f"{table} is longer than {_LIMIT_BYTES} bytes")
            _number, local, _remote, state, queues, _timer, _retries, _user, _timeout, inode, *_ = row.split(None, 10)
            port = int(local[-4:], 16)
            if port in ephemeral and state != _LISTEN:
                used.add(port)
            if (sockets := by_port.get(port)) is None:
                continue
            if state == _LISTEN:
                sockets.listening.add(inode.decode())
                # Of a listening socket, the receive queue holds connections.
                sockets.connections["backlog"] += int(queues.partition(b":")[2], 16)
            elif state in _STATES:
                sockets.connections[_STATES[state]] += 1
