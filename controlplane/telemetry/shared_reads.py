"""What several queries of one moment read: each selector once."""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.telemetry.promql.evaluation import Select
from controlplane.telemetry.store.matching import Counted, Matcher
from controlplane.telemetry.store.reader import Reader, Selection

# Of 24 bytes each. Beyond, what was read is forgotten, and read again.
SAMPLES_MAX = 2_000_000


class SharedReads:
    """Not for several threads at once. Nothing of a selection may be changed by who gets it."""

    def __init__(self) -> None:
        self._kept: dict[tuple[tuple[Matcher, ...], int, int], Selection] = {}
        self._samples = 0

    def of(self, reader: Reader) -> Select:
        """`reader.select`, which remembers."""

        def select(matchers: Sequence[Matcher], after_ms: int, until_ms: int, counted: Counted) -> Selection:
            key = tuple(matchers), after_ms, until_ms
            if (selection := self._kept.get(key)) is not None:
                # What a query may read counts as if it were alone.
                counted(len(selection.columns.times_ms))
                return selection
            selection = reader.select(matchers, after_ms, until_ms, counted)
            self._keep(key, selection)
            return selection

        return select

    def _keep(self, key: tuple[tuple[Matcher, ...], int, int], selection: Selection) -> None:
        self._samples += len(selection.columns.times_ms)
        if self._samples > SAMPLES_MAX:
            self._kept.clear()
            self._samples = len(selection.columns.times_ms)
        self._kept[key] = selection
