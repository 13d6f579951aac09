"""Keeps the router's file as the newest slice says, overrides that end included."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from adapters.production_stack.router_file import Choices, RouterFile, router_file
from wire.files import read_bounded, write_whole
from wire.problems import Problem
from wire.snapshot import GatewaySnapshot, Snapshot
from wire.snapshot_checks import SnapshotRefused

log = logging.getLogger("headworks.router-config")
# It holds addresses and names, no secret, and the router runs as another user.
_FILE_MODE = 0o644
_FILE_BYTES_MAX = 16 * 2**20
# A clock that is set moves the end of an override; a disk that was full may have room again.
_LOOK_AGAIN_SECONDS = 5.0


class RouterConfig:
    """`on_snapshot` for a TargetClient; `run` rewrites the file when an override ends."""

    def __init__(self, path: Path, choices: Choices, clock: Callable[[], float] = time.time) -> None:
        self._path, self._choices, self._clock = path, choices, clock
        self._snapshot: GatewaySnapshot | None = None
        self._told: tuple[tuple[Problem, ...], tuple[str, ...]] = ((), ())
        self._changes_at_ms: int | None = None
        self._changed = asyncio.Event()

    def on_snapshot(self, snapshot: Snapshot, revision: int) -> None:
        """Write the file. Raises SnapshotRefused where the router cannot hold the slice, or the file is not written."""
        if not isinstance(snapshot, GatewaySnapshot):
            raise SnapshotRefused([Problem("/kind", "kind", "this target follows the slice of a gateway")])
        self._write(snapshot)
        self._snapshot = snapshot
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled: when an override ends, the file changes without a new slice."""
        while True:
            self._changed.clear()
            try:
                async with asyncio.timeout(self._seconds_to_change()):
                    await self._changed.wait()
                    continue
            except TimeoutError:
                pass
            if self._snapshot is not None and self._is_due():
                try:
                    self._write(self._snapshot)
                except SnapshotRefused as error:
                    log.warning("an override has ended, and the file does not say so yet: %s", error)
                    await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    def _is_due(self) -> bool:
        return self._changes_at_ms is not None and self._changes_at_ms <= self._now_ms()

    def _seconds_to_change(self) -> float | None:
        if self._changes_at_ms is None:
            return None
        return min(max(0.0, (self._changes_at_ms - self._now_ms()) / 1000), _LOOK_AGAIN_SECONDS)

    def _write(self, snapshot: GatewaySnapshot) -> None:
        file = router_file(snapshot, self._choices, self._now_ms())
        try:
            if self._standing() != file.content:
                write_whole(self._path, file.content, mode=_FILE_MODE)
                log.info("wrote %s", self._path)
        except OSError as error:
            message = f"the router's file cannot be written: {error.strerror}; its folder must be there and writable"
            raise SnapshotRefused([Problem("/", "not_written", message)]) from error
        self._changes_at_ms = file.changes_at_ms
        self._tell(file)

    def _standing(self) -> bytes | None:
        try:
            return read_bounded(self._path, _FILE_BYTES_MAX)
        except (FileNotFoundError, ValueError):
            return None

    def _tell(self, file: RouterFile) -> None:
        """What the router does not do, whenever that has changed."""
        left_out, parts = self._told
        if file.left_out != left_out:
            for problem in file.left_out:
                log.warning("left out %s: %s", problem.path, problem.message)
        if file.not_enforced != parts:
            log.warning("not enforced by the router: %s", "; ".join(file.not_enforced) or "nothing")
        self._told = file.left_out, file.not_enforced
