"""Events of this node, on their way to the control plane."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Literal

from wire.messages import Event

Severity = Literal["info", "warning", "critical"]
_SUBJECT_CHARACTERS = 200
_DETAIL_CHARACTERS = 2000


class Reporter:
    """Makes events of one node and hands them on. `clock` is Unix time in seconds."""

    def __init__(self, node: str, sink: Callable[[Event], None], clock: Callable[[], float] = time.time) -> None:
        self._node, self._sink, self._clock = node, sink, clock

    def now_ms(self) -> int:
        return int(self._clock() * 1000)

    def report(
        self,
        kind: str,
        subject: str,
        severity: Severity,
        detail: str,
        *,
        at_ms: int | None = None,
        event_id: str | None = None,
    ) -> None:
        """`subject`: a GPU's UUID, a PCI bus id, or the name of what it is about. `event_id`: the same for a resend."""
        self._sink(
            Event(
                id=event_id or uuid.uuid4().hex,
                at=self.now_ms() if at_ms is None else at_ms,
                node=self._node,
                kind=kind,
                subject=subject[:_SUBJECT_CHARACTERS],
                severity=severity,
                detail=detail[:_DETAIL_CHARACTERS],
            )
        )
