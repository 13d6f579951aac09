"""Network namespaces of other containers: in which one an address is, and so whose sockets are an engine's.

An agent that sees the host's processes sees every pod's sockets and addresses through any process in it.
Source: proc(5).
"""

from __future__ import annotations

import ipaddress
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gpu_agent.host.proc import pids, stat_of

# Asking 3,000 processes for their namespace takes some 10 ms.
_SEARCH_SECONDS = 60


class Namespaces:
    """`of` reads /proc, and belongs into a thread. `clock`: seconds, without jumps."""

    def __init__(self, proc: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._proc, self._clock = proc, clock
        # A process in the namespace of each address, with its start.
        self._inside: dict[str, tuple[int, int]] = {}
        self._search_due_seconds = float("-inf")

    def of(self, addresses: set[str]) -> dict[str, Path]:
        """The folders whose `net` is that of each address; one is absent whose namespace is not found."""
        for address, (pid, started_ticks) in list(self._inside.items()):
            stat = stat_of(self._proc, pid)
            if address not in addresses or stat is None or stat.started_ticks != started_ticks:
                del self._inside[address]
        missing = addresses - self._inside.keys()
        now_seconds = self._clock()
        if missing and now_seconds >= self._search_due_seconds:
            self._search_due_seconds = now_seconds + _SEARCH_SECONDS
            self._search(missing)
        return {address: self._proc / str(pid) for address, (pid, _) in self._inside.items()}

    def _search(self, missing: set[str]) -> None:
        seen = {self._namespace("self")}
        for pid in pids(self._proc):
            namespace = self._namespace(str(pid))
            if namespace in seen or (stat := stat_of(self._proc, pid)) is None:
                continue
            seen.add(namespace)
            for address in missing.intersection(_addresses(self._proc / str(pid) / "net")):
                self._inside[address] = pid, stat.started_ticks

    def _namespace(self, process: str) -> str | None:
        """None, as for one that has none, where the process is gone or only a privileged reader may see it."""
        try:
            return os.readlink(self._proc / process / "ns/net")
        except OSError:
            return None


def _addresses(net: Path) -> Iterator[str]:
    """The addresses that a namespace has itself."""
    try:
        address = ""
        for line in (net / "fib_trie").read_text().splitlines():
            if "|-- " in line:
                address = line.partition("|-- ")[2]
            elif line.strip() == "/32 host LOCAL":
                yield address
        for line in (net / "if_inet6").read_text().splitlines():
            yield str(ipaddress.ip_address(bytes.fromhex(line.split()[0])))
    except OSError:
        # IPv6 is off, or the process has ended.
        return
