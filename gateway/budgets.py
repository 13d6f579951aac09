"""What was used of each tenant's day, kept on disk: a restart must not give a second budget.

Tokens that were reserved when a gateway was killed count as used. What was used within the last
HEADWORKS_GATEWAY_BUDGET_KEEP_SECONDS before that is lost. Where gateways count together, what is kept is what counts as
used of this one's share, should their Redis be away when it starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec

from wire.canonical import MAX_INTEGER
from wire.files import read_bounded, write_private

log = logging.getLogger("headworks.gateway.budgets")
_FILE_NAME = "budgets.json"
# A line for each of 100,000 tenants.
_FILE_LIMIT_BYTES = 16 * 1024 * 1024
# A clock can stand before 1970.
_Moment = Annotated[int, msgspec.Meta(ge=-MAX_INTEGER, le=MAX_INTEGER)]


class KeptDay(msgspec.Struct, frozen=True):
    """Tokens that a tenant took of the day from `start_ms` to before `end_ms`, both epoch milliseconds."""

    start_ms: _Moment
    end_ms: _Moment
    taken_tokens: Annotated[int, msgspec.Meta(ge=0)]


def kept_budgets(state_dir: Path) -> dict[str, KeptDay]:
    """Tenant → its day, as last kept; nothing where none was kept or the file is damaged."""
    try:
        data = read_bounded(state_dir / _FILE_NAME, _FILE_LIMIT_BYTES)
        return msgspec.json.decode(data, type=dict[str, KeptDay])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        log.warning("what was used of the daily token budgets is not known, nothing is assumed: %s", error)
        return {}


class BudgetKeeper:
    """Writes what `changed` answers, None being nothing new, at most once in `interval_seconds`, and at the end."""

    def __init__(
        self, state_dir: Path, changed: Callable[[], dict[str, KeptDay] | None], interval_seconds: float
    ) -> None:
        self._path = state_dir / _FILE_NAME
        self._changed, self._interval_seconds = changed, interval_seconds
        self._waiting: dict[str, KeptDay] | None = None
        self._failing = False
        self._ending = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name="budgets")

    async def end(self) -> None:
        """Write what is new for the last time."""
        self._ending.set()
        await self._task
        # The task may have been writing when it was told, and more was used meanwhile.
        await self._keep()

    async def _run(self) -> None:
        while not self._ending.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), self._interval_seconds)
            await self._keep()

    async def _keep(self) -> None:
        self._waiting = self._changed() or self._waiting
        if self._waiting is None:
            return
        try:
            await asyncio.to_thread(write_private, self._path, msgspec.json.encode(self._waiting))
        except OSError as error:
            if not self._failing:
                log.warning("what is used of the daily token budgets is not kept on disk: %s", error)
            self._failing = True
        else:
            self._waiting, self._failing = None, False
