"""Holding this process to addresses that may be reached, for libraries that make their own connections.

An audit hook (PEP 578) is asked by the interpreter before each connection, whoever makes it and by whatever class of
socket, and nothing can take it away again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from controlplane.alerts.addresses import Network, address_refusal

_CONNECTS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_STARTS = frozenset({"subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn"})


class AddressRefused(Exception):
    """The address that was about to be connected to may not be. No OSError, after which the next one is tried."""


class Guard:
    """From `hold` on: connections only to addresses that may be reached, no processes, and files only of Python itself.

    `refused` has why each connection was, whatever the library made of it.
    """

    def __init__(self, allowed: Sequence[Network], readable: Sequence[str]) -> None:
        self.refused: list[str] = []
        self._allowed = allowed
        self._readable = tuple({str(Path(root).resolve()) for root in (sys.prefix, sys.base_prefix, *readable)})

    def hold(self) -> None:
        sys.addaudithook(self._judge)

    def _judge(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _CONNECTS:
            self._judge_address(arguments[1])
        elif event in _STARTS:
            raise PermissionError("no process may be started here")
        elif event == "open":
            self._judge_file(*arguments)

    def _judge_address(self, place: Any) -> None:
        try:
            # A name in its place would be looked up after this: those that connect look it up before.
            host = place[0] if isinstance(place, tuple) else ""
            refusal = address_refusal(str(host), self._allowed)
        except ValueError:
            refusal = "a connection to something else than a literal internet address was begun"
        if refusal:
            self.refused.append(refusal)
            raise AddressRefused(refusal)

    def _judge_file(self, path: Any, mode: Any, flags: int) -> None:
        if isinstance(path, int):
            return
        file = str(Path(os.fsdecode(path)).resolve())
        inside = any(file == root or file.startswith(f"{root}/") for root in self._readable)
        if not inside or flags & _WRITES:
            raise PermissionError(f"{file} is no file that a message needs")
