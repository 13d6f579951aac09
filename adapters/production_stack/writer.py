"""Keeps the router's file as the newest slice says, overrides that end included."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from adapters.production_stack.router_file import Choices, RouterFile, router_file
from wire.files import read_bounded, write_whole
from wire.pace import Pace
from wire.problems import Problem
from wire.snapshot import GatewaySnapshot, Snapshot
from wire.snapshot_checks import SnapshotNotTaken, SnapshotRefused

log = logging.getLogger("headworks.router-config")
# It holds addresses and names, no secret, and the router runs as another user.
_FILE_MODE = 0o644
_FILE_BYTES_MAX = 16 * 2**20
# A clock that is set moves the end of an override.
_LOOK_AGAIN_SECONDS = 5.0
# A disk that is full may have room again.
_WRITE_AGAIN = Pace(retry_base_seconds=1.0)


class RouterConfig:
    """`on_snapshot` for a TargetClient; `run` rewrites the file when an override ends.

    What could not be written is tried again: by a TargetClient's `adopt_again`, which `run` is given.
    """

    def __init__(
        self, path: Path, choices: Choices, clock: Callable[[], float] = time.time, pace: Pace = _WRITE_AGAIN
    ) -> None:
        self._path, self._choices, self._clock, self._pace = path, choices, clock, pace
        self._snapshot: GatewaySnapshot | None = None
        self._told: tuple[tuple[Problem, ...], tuple[str, ...]] = ((), ())
        self._changes_at_ms: int | None = None
        self._changed, self._not_taken = asyncio.Event(), asyncio.Event()

    def on_snapshot(self, snapshot: Snapshot, revision: int) -> None:
        """Write the file.

        Raises SnapshotRefused where the router cannot hold the slice, SnapshotNotTaken where the file is not written.
        """
        self._not_taken.clear()
        if not isinstance(snapshot, GatewaySnapshot):
            raise SnapshotRefused([Problem("/kind", "kind", "this target follows the slice of a gateway")])
        try:
            self._write(snapshot)
        except SnapshotNotTaken:
            self._not_taken.set()
            raise
        self._snapshot = snapshot
        self._changed.set()

    async def run(self, adopt_again: Callable[[], Awaitable[None]]) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._end_overrides())
            tasks.create_task(self._write_again(adopt_again))

    async def _write_again(self, adopt_again: Callable[[], Awaitable[None]]) -> None:
        """A slice that was not written is not lost until the next one comes."""
        while True:
            await self._not_taken.wait()
            attempt = 0
            while self._not_taken.is_set():
                # Not at once: it has just failed.
                await asyncio.sleep(self._pace.retry_base_seconds)
                await asyncio.sleep(self._pace.delay_seconds(attempt, self._pace.refused_cap_seconds))
                if self._not_taken.is_set():
                    await adopt_again()
                attempt += 1

    async def _end_overrides(self) -> None:
        """When an override ends, the file changes without a new slice."""
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
            raise SnapshotNotTaken([Problem("/", "not_written", message)]) from error
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
