"""Room on the disks of chosen folders, each asked apart: a network disk whose server is away answers never."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable

from gpu_agent.host.apart import Apart, NoAnswer
from gpu_agent.samples import Sample

_ANSWER_SECONDS = 1.0


class Disks:
    """`problems`: why nothing is known of a path, by path."""

    def __init__(self, paths: Iterable[str], statvfs: Callable[[str], os.statvfs_result] = os.statvfs) -> None:
        self._asked = {path: Apart[os.statvfs_result]("disk") for path in paths}
        self._statvfs = statvfs
        self.problems: dict[str, str] = {}

    async def samples(self) -> list[Sample]:
        """Of the disks that answer, within a second."""
        answers = await asyncio.gather(*(self._ask(path) for path in self._asked))
        return [sample for of_path in answers for sample in of_path]

    async def _ask(self, path: str) -> list[Sample]:
        try:
            disk = await self._asked[path].run(lambda: self._statvfs(path), _ANSWER_SECONDS)
        except (OSError, NoAnswer) as error:
            self.problems[path] = str(error)
            return []
        self.problems.pop(path, None)
        labels = {"path": path}
        return [
            Sample("headworks_host_disk_bytes", labels, float(disk.f_blocks * disk.f_frsize), 0),
            Sample("headworks_host_disk_available_bytes", labels, float(disk.f_bavail * disk.f_frsize), 0),
        ]
