"""A web process and its worker in one, as far as the store goes: `python -m … PATH WRITER BEGIN SERIES`.

It writes rounds of one sample for each of SERIES series of its own, prints each round's number once it is stored, and
packs and prunes now and then. It ends by being killed.
"""

from __future__ import annotations

import sys
import threading
from itertools import count
from pathlib import Path

from controlplane.telemetry.store.packing import pack
from controlplane.telemetry.store.retention import prune
from controlplane.telemetry.store.writer import Owner
from tests.controlplane.telemetry.filling import named, store


def rearrange(path: Path) -> None:
    while True:
        pack(path, 2**60)
        prune(path, -(2**60), 2**40)


def main(path: Path, writer: str, begin: int, series: int) -> None:
    threading.Thread(target=rearrange, args=(path,), daemon=True).start()
    for at in count(begin):
        rows = [named("a", [(at, float(at))], n=str(number), writer=writer) for number in range(series)]
        store(path, rows, Owner("node", writer))
        print(at, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
