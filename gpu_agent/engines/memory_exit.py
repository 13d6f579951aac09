"""Whether an engine's last run ended for want of GPU memory, as its log tells. Pure.

Source: PyTorch, c10/cuda/CUDACachingAllocator.cpp, whose words vLLM's log carries.
"""

from __future__ import annotations

import re
from typing import NamedTuple, overload

_SIZE = rb"([0-9]+(?:\.[0-9]+)?) ([KMG]iB|bytes)"
_FAILED = re.compile(rb"CUDA out of memory\. Tried to allocate " + _SIZE)
_FREE = re.compile(rb"of which " + _SIZE + rb" is free")
_UNALLOCATED = re.compile(_SIZE + rb" is reserved by PyTorch but unallocated")
_UNITS = {b"bytes": 1, b"KiB": 2**10, b"MiB": 2**20, b"GiB": 2**30}


class MemoryExit(NamedTuple):
    """An allocation that failed. `free`: of the GPU then; `unallocated`: held by PyTorch and unused; None: not told.

    `at`: where in the text it is told.
    """

    asked_bytes: int
    free_bytes: int | None
    unallocated_bytes: int | None
    at: int

    @property
    def parts(self) -> dict[str, int]:
        told = {"asked": self.asked_bytes, "free": self.free_bytes, "unallocated": self.unallocated_bytes}
        return {part: size for part, size in told.items() if size is not None}


def last_memory_exit(text: bytes) -> MemoryExit | None:
    """The last one that a log tells of, with what stands on the same line."""
    found = None
    for match in _FAILED.finditer(text):
        found = match
    if found is None:
        return None
    end = text.find(b"\n", found.end())
    line = text[found.start() : len(text) if end < 0 else end]
    return MemoryExit(_bytes(found), _bytes(_FREE.search(line)), _bytes(_UNALLOCATED.search(line)), found.start())


@overload
def _bytes(match: re.Match[bytes]) -> int: ...
@overload
def _bytes(match: re.Match[bytes] | None) -> int | None: ...
def _bytes(match: re.Match[bytes] | None) -> int | None:
    return None if match is None else int(float(match[1]) * _UNITS[match[2]])
