"""What the stages of a request note for the log of decisions."""

from __future__ import annotations

import time
from types import TracebackType


class Note:
    """What one stage did (wire.messages.StageNote); it runs within the block."""

    __slots__ = ("_begun_ns", "numbers", "stage", "took_us")

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.numbers: dict[str, int] = {}
        self.took_us = 0

    def __enter__(self) -> None:
        self._begun_ns = time.monotonic_ns()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.took_us = (time.monotonic_ns() - self._begun_ns) // 1000
