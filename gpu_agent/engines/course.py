"""One engine from look to look: what its looks together show that no single one does. No I/O."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
from msgspec import UNSET

from gpu_agent.engines.condition import Down, Signs, condition_of
from gpu_agent.engines.hang import Standstill, apart, standstill
from gpu_agent.engines.look import Look
from gpu_agent.engines.restarts import Run, follow
from gpu_agent.engines.tell import Told, told_of_condition, told_of_overdue_restart, told_of_restart
from wire.messages import Condition
from wire.snapshot import NodeEngine

# Of a server of many ranks; a report's error is bounded.
_RANKS_NAMED = 3
# After a machine was suspended, the first look shows what the last one before did.
_FEWEST_LOOKS = 3


class Course:
    """What is remembered of one engine. It is hung, or a rank of it, whose work stands still for `hung_seconds`."""

    def __init__(self, hung_seconds: float) -> None:
        self._hung_seconds = hung_seconds
        self._condition: Condition | None = None
        # By rank; "" is the engine as a whole.
        self._still: dict[str, Standstill] = {}
        self._run: Run | None = None
        self._asked_until_seconds = -math.inf
        # It was told that it is down in milder words, since a restart was asked for.
        self._spared = False
        self.restarts = 0

    def expect_restart(self, until_seconds: float) -> None:
        """Somebody asked for the next restart, if it comes by then."""
        self._asked_until_seconds = until_seconds

    def follow(
        self, engine: NodeEngine, look: Look, paused: bool | None, now_seconds: float
    ) -> tuple[Look, list[Told]]:
        """The next look with what it shows after those before, and the events that it asks for.

        `paused`: what the engine says of that; None where it cannot be told. `now_seconds`: of a clock without jumps.
        """
        restarted = self._same_run(engine.kind, look)
        sleeping = _sleeping(look)
        down = _down(look)
        rests = condition_of(self._condition, Signs(down, sleeping, paused, hung=False)) in ("paused", "sleeping")
        look = self._standing(look, now_seconds, rests=rests)
        before = self._condition
        self._condition = condition_of(before, Signs(down, sleeping, paused, look.hung))
        started_ms = self._run.started_ms if self._run is not None and down is None else None
        report = msgspec.structs.replace(
            look.report, condition=self._condition, started_at_ms=UNSET if started_ms is None else started_ms
        )
        asked = now_seconds <= self._asked_until_seconds
        stopped = self._asked_until_seconds == math.inf
        told = told_of_condition(before, engine, report, asked="stop" if stopped else "restart" if asked else "")
        if self._spared and down is not None and not asked:
            told.append(told_of_overdue_restart(engine, report))
        self._spared = down is not None and asked and (self._spared or bool(told))
        if restarted:
            self._asked_until_seconds = -math.inf
            told.append(told_of_restart(report.name, engine, asked=asked))
        return replace(look, report=report, restarts=self.restarts), told

    def _same_run(self, kind: str, look: Look) -> bool:
        if look.report.state != "up":
            if self._run is not None and look.refused:
                self._run = replace(self._run, refused=True)
            return False
        self._run, restarted = follow(self._run, kind, look.numbers, look.at_ms)
        self.restarts += restarted
        return restarted

    def _standing(self, look: Look, now_seconds: float, *, rests: bool) -> Look:
        """Whether it hangs. A page without numbers is no sign of life; being down is no hang, and nor is a rest."""
        if look.report.state != "up" or rests:
            self._still.clear()
            return replace(look, hung=False) if rests else look
        parts = apart(look.numbers, look.ranks)
        if not parts:
            return look
        still = {part: standstill(self._still.get(part), parts[part], now_seconds, look.at_ms) for part in parts}
        self._still = {part: found for part, found in still.items() if found is not None}
        hung = {
            part: found
            for part, found in self._still.items()
            if found.looks >= _FEWEST_LOOKS and found.lasted_seconds(now_seconds) >= self._hung_seconds
        }
        if not hung:
            return replace(look, hung=False)
        error = "; ".join(filter(None, (_hang(hung), look.report.error or "")))
        return replace(look, hung=True, report=msgspec.structs.replace(look.report, error=error))


def _down(look: Look) -> Down | None:
    if look.report.state != "down":
        return None
    return "dead" if look.report.condition == "dead" else "unreachable"


def _sleeping(look: Look) -> bool | None:
    return next((reading.value == 0 for reading in look.numbers if reading.name == "awake"), None)


def _hang(hung: Mapping[str, Standstill]) -> str:
    """The same at every look of one hang, or each would be a change that is reported."""
    parts = sorted(hung)
    said = "; ".join(f"{f'rank {part}: ' if part else ''}{_stands(hung[part])}" for part in parts[:_RANKS_NAMED])
    more = len(parts) - _RANKS_NAMED
    return f"hung: {said}{f'; and {more} ranks more' if more > 0 else ''}"


def _stands(still: Standstill) -> str:
    since = datetime.fromtimestamp(still.since_ms / 1000, UTC)
    return f"requests running {still.running_requests}, nothing moved since {since:%Y-%m-%d %H:%M:%S} UTC"
