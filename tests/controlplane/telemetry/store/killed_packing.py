"""Packing that is killed: `python -m … PATH FOLDER`.

It packs copies of the store at PATH, `1.sqlite3` and so on in FOLDER, each in a process of its own that is killed
before its first statement, its second, and so on, until one comes to the end.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from contextlib import closing
from itertools import count
from pathlib import Path
from unittest.mock import patch

from controlplane.telemetry.store import packing
from controlplane.telemetry.store.database import connect


def pack_until(path: Path, number: int) -> None:
    """Pack, and be killed just before the statement of this number."""
    statements = count(1)

    def traced(path: Path, *, writing: bool) -> sqlite3.Connection:
        connection = connect(path, writing=writing)
        connection.set_trace_callback(
            lambda statement: os.kill(os.getpid(), signal.SIGKILL) if next(statements) == number else None
        )
        return connection

    with patch.object(packing, "connect", traced):
        packing.pack(path, 2**60)


def main(path: Path, folder: Path) -> None:
    for number in count(1):
        copy = folder / f"{number}.sqlite3"
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        child = os.fork()
        if not child:
            pack_until(copy, number)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
