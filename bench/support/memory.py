"""What processes hold, as the kernel counts it."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_KIB = 1024
# Bits of an entry of /proc/PID/pagemap. Source: Documentation/admin-guide/mm/pagemap.rst
_PRESENT, _OF_A_FILE = 1 << 63, 1 << 61


class Memory(NamedTuple):
    """In bytes. `resident` counts pages that are shared with other processes in full, `proportional` by share."""

    resident: int
    proportional: int


def memory_of(pid: int) -> Memory:
    rows = dict(line.split()[:2] for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return Memory(int(rows["Rss:"]) * _KIB, int(rows["Pss:"]) * _KIB)


def resident_mib(pid: int) -> float:
    return round(memory_of(pid).resident / 2**20, 1)


def resident_together(pids: Iterable[int]) -> int:
    """Bytes of memory that processes hold between them: a page of a file that several have mapped is there once."""
    of_files: set[tuple[str, int]] = set()
    own_pages = 0
    for pid in pids:
        for entry, page in _pages(pid):
            if page is not None and entry & _OF_A_FILE:
                of_files.add(page)
            else:
                own_pages += 1
    return (len(of_files) + own_pages) * _PAGE_BYTES


def _pages(pid: int) -> Iterator[tuple[int, tuple[str, int] | None]]:
    """Every page in memory: its entry, and the file and page number in it, if it is of one."""
    with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as pagemap:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            addresses, _, offset, device, inode = line.split()[:5]
            begin, end = (int(address, 16) // _PAGE_BYTES for address in addresses.split("-"))
            if line.endswith("[vsyscall]"):
                continue
            pagemap.seek(begin * 8)
            first = int(offset, 16) // _PAGE_BYTES
            for number, entry in enumerate(array("Q", pagemap.read((end - begin) * 8))):
                if entry & _PRESENT:
                    yield entry, (f"{device} {inode}", first + number) if inode != "0" else None


def children(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]
