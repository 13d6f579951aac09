"""What was begun of the acts, on disk before it is begun, so that a restart neither repeats an act nor loses one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from wire.files import read_bounded, write_private
from wire.messages import MAX_ACTS, UNREADABLE, ActReport
from wire.snapshot import Act, ActId, EpochMillis

log = logging.getLogger("headworks.agent.acts")
# Each entry holds an act, its result, and of a restart under way the former configuration file.
_LIMIT_BYTES = 64 << 20
# Of 50 bytes each; the busiest node sees some hundred acts in the days that one may wait.
_TOLD_LIMIT = 10_000


class Entry(Struct, frozen=True, omit_defaults=True):
    """One act that was begun or refused. `kept`: what its doing must know again after a restart of the agent."""

    act: Act
    report: ActReport
    kept: dict[str, str | int] = {}

    @property
    def began_at_ms(self) -> int:
        return self.report.at_ms - self.report.took_ms


class _Content(Struct, frozen=True):
    """`told`: acts whose end the control plane knows, by when they expire. Seen again, one is not begun again."""

    entries: dict[ActId, Entry] = {}
    told: dict[ActId, EpochMillis] = {}


class Journal:
    """The file, and what it holds. `damaged`: it could not be read, so that nobody knows what was begun before."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._writing = asyncio.Lock()
        self.damaged = False
        self._content = self._load()

    @property
    def entries(self) -> Mapping[str, Entry]:
        return self._content.entries

    def knows(self, act_id: str) -> bool:
        return act_id in self._content.entries or act_id in self._content.told

    @property
    def full(self) -> bool:
        """Room comes when the control plane has taken results."""
        return len(self._content.entries) >= MAX_ACTS

    async def put(self, act_id: str, entry: Entry) -> None:
        """Raises: OSError; nothing has changed then."""
        async with self._writing:
            content = msgspec.structs.replace(self._content, entries={**self._content.entries, act_id: entry})
            await asyncio.to_thread(write_private, self._file, msgspec.json.encode(content))
            self._content = content

    async def put_end(self, act_id: str, entry: Entry) -> None:
        """Also where the disk takes nothing: an end that is told is better than one that is written."""
        try:
            await self.put(act_id, entry)
        except OSError as error:
            log.warning("the end of act %s is not kept on disk: %s", act_id, error.strerror)
            self._content = msgspec.structs.replace(self._content, entries={**self._content.entries, act_id: entry})

    async def forget(self, act_ids: set[str], now_ms: int) -> None:
        """Of acts that have ended and are told, keep only that they were."""
        async with self._writing:
            entries = {each: entry for each, entry in self._content.entries.items() if each not in act_ids}
            told = {each: until for each, until in self._content.told.items() if until >= now_ms}
            told |= {each: self._content.entries[each].act.expires_at_ms for each in act_ids}
            # Those that expire last, which is when they could be begun again.
            latest = sorted(told.items(), key=lambda item: item[1])[-_TOLD_LIMIT:]
            content = _Content(entries, dict(latest))
            # Before it is written: no report tells of them meanwhile.
            self._content = content
            try:
                await asyncio.to_thread(write_private, self._file, msgspec.json.encode(content))
            except OSError as error:
                # It is told once more after a restart.
                log.warning("the journal of acts cannot be written: %s", error.strerror)

    def _load(self) -> _Content:
        try:
            return msgspec.json.decode(read_bounded(self._file, _LIMIT_BYTES), type=_Content)
        except FileNotFoundError:
            return _Content()
        except (OSError, ValueError, *UNREADABLE) as error:
            log.error("the journal of acts cannot be read; acts that wait now are refused: %s", error)
            self.damaged = True
            return _Content()
