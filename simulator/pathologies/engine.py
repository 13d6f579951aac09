"""The conditions that hold at one engine, and what each of them does to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from simulator.pathologies.conditions import (
    Condition,
    FewFiles,
    FrontEndBound,
    IgnoresCancel,
    KvLeak,
    KvOverstated,
    SlowGrammars,
)
from simulator.pathologies.files import FileLimit

if TYPE_CHECKING:
    from simulator.grammars import Grammars
    from simulator.metrics import EngineMetrics
    from simulator.pathologies.front_end import FrontEnd


class EngineConditions:
    """Turns conditions on and off. `heeds_cancel`: whether an answer ends where its client leaves.

    `front_end`: None for an engine that computes nothing, and has no tokens to hand on.
    """

    def __init__(self, metrics: EngineMetrics, grammars: Grammars, front_end: FrontEnd | None) -> None:
        self._metrics, self._grammars, self._front_end = metrics, grammars, front_end
        self._files = FileLimit()
        self._compile_seconds = grammars.compile_seconds
        self.heeds_cancel = True

    def hold(self, conditions: Iterable[Condition]) -> None:
        """Let these hold, and no others."""
        leaked, overstated, token_seconds = 0.0, 1.0, 0.0
        heeds_cancel, compile_seconds, spare = True, self._compile_seconds, None
        for condition in conditions:
            match condition:
                case KvLeak():
                    leaked = condition.share
                case KvOverstated():
                    overstated = condition.factor
                case IgnoresCancel():
                    heeds_cancel = False
                case FrontEndBound():
                    token_seconds = condition.token_seconds
                case SlowGrammars():
                    compile_seconds = condition.compile_seconds
                case FewFiles():
                    spare = condition.spare
        self._metrics.scheduler.withhold(leaked)
        self._metrics.told_capacity_factor = overstated
        self._grammars.take(compile_seconds)
        self.heeds_cancel = heeds_cancel
        if self._front_end is not None:
            self._front_end.bind(token_seconds)
        self._files.hold(spare)

    def hand_on(self, work: Callable[[], None]) -> None:
        """Do one token's work in front of the engine."""
        if self._front_end is None:
            work()
        else:
            self._front_end.hand_on(work)
