"""Which samples of the labelled families have to be pushed: of thousands of tenants few have just asked for something.

A counter that stands still is sent again before it was silent for half a minute, so that rate() over a minute, the
shortest window in use, always finds two samples. When it moves, a sample of what it was at the last push goes before
the new one, if that push was spared: to the store it stood still until then, and rate() sees the step where it was.
So does a zero before the first value of one that began meanwhile, else the first request of a tenant would be no step.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator, Sequence

from prometheus_client.core import Sample

from gateway.families import AnyFamily, Families, Values
from gateway.named import Labels, Named
from wire.write_body import METRIC_NAME, STALE, Series

# Two in any minute, with a push of 5 s to wait for.
_AGAIN_MS = 25_000


class _Sent:
    """What the store was told of one child: of each of its series the last value, and when.

    `whole_ms`: when all of them were last sent.
    """

    __slots__ = ("at_ms", "values", "whole_ms")

    def __init__(self, samples: Sequence[Sample], now_ms: int) -> None:
        self.values = array("d", [sample.value for sample in samples])
        self.at_ms = array("q", [now_ms]) * len(samples)
        # Those that began together do not come again together.
        self.whole_ms = now_ms - random.randrange(_AGAIN_MS)  # noqa: S311 - spreads load

    def is_due(self, now_ms: int) -> bool:
        # A clock that was set back makes all of them due.
        return not 0 <= now_ms - self.whole_ms < _AGAIN_MS


class Changes:
    """Knows what was sent of `families`, each series with the label `gateway`. One push at a time."""

    def __init__(self, families: Families, gateway: str) -> None:
        self._families, self._gateway = families.labelled, gateway
        self._sent: list[dict[Values, _Sent]] = [{} for _ in self._families]
        # All that were ever touched: of these it is not known what they were at the last push, unless they were sent.
        self._begun: list[set[Values]] = [set() for _ in self._families]
        self._named: Named | None = None
        self._pushed_ms = 0

    def take_touched(self) -> list[set[Values]]:
        """What `due` asks for. Call it in the event loop."""
        return [family.take_touched() for family in self._families]

    def due(self, touched: list[set[Values]], named: Named, now_ms: int) -> Iterator[Series]:
        """What must be sent of what is named now, and an end for what no longer is. It may run in a thread."""
        before_ms, self._pushed_ms = self._pushed_ms, now_ms
        others, self._named = named != self._named, named
        for family, sent, begun, changed in zip(self._families, self._sent, self._begun, touched, strict=True):
            new = changed - begun
            begun |= new
            if others:
                yield from self._ended(family, sent, named, now_ms)
                # A tenant may have come back without having asked for anything yet.
                changed = changed.union(each for each in list(family.children) if each not in sent)
            changed.update([values for values, known in sent.items() if known.is_due(now_ms)])
            for values in changed:
                if values in sent or named.takes(dict(zip(family.names, values, strict=True))):
                    yield from self._changed(family, values, sent, before_ms, now_ms, is_new=values in new)

    def end(self, at_ms: int) -> Iterator[Series]:
        """An end for all that was sent and has none yet."""
        for family, sent in zip(self._families, self._sent, strict=True):
            for values in list(sent):
                yield from self._ends(family, values, at_ms)
            sent.clear()

    def _ended(self, family: AnyFamily, sent: dict[Values, _Sent], named: Named, now_ms: int) -> Iterator[Series]:
        for values in [each for each in sent if not named.takes(dict(zip(family.names, each, strict=True)))]:
            del sent[values]
            yield from self._ends(family, values, now_ms)

    def _ends(self, family: AnyFamily, values: Values, at_ms: int) -> Iterator[Series]:
        for sample in _samples(family, values):
            yield Series(self._labels(family, values, sample), ((at_ms, STALE),))

    def _changed(
        self,
        family: AnyFamily,
        values: Values,
        sent: dict[Values, _Sent],
        before_ms: int,
        now_ms: int,
        *,
        is_new: bool,
    ) -> Iterator[Series]:
        samples = _samples(family, values)
        known = sent.get(values)
        if known is None:
            sent[values] = _Sent(samples, now_ms)
            zero = ((before_ms, 0.0),) if is_new and 0 < before_ms < now_ms else ()
            for sample in samples:
                yield Series(self._labels(family, values, sample), (*zero, (now_ms, sample.value)))
            return
        whole = known.is_due(now_ms)
        if whole:
            known.whole_ms = now_ms
        for index, sample in enumerate(samples):
            old, value = known.values[index], sample.value
            if value == old and not whole:
                continue
            told: tuple[tuple[int, float], ...] = ((now_ms, value),)
            if value != old and known.at_ms[index] < before_ms < now_ms:
                told = ((before_ms, old), *told)
            known.values[index], known.at_ms[index] = value, now_ms
            yield Series(self._labels(family, values, sample), told)

    def _labels(self, family: AnyFamily, values: Values, sample: Sample) -> Labels:
        of_child = zip(family.names, values, strict=True)
        return {METRIC_NAME: sample.name, "gateway": self._gateway, **dict(of_child), **sample.labels}


def _samples(family: AnyFamily, values: Values) -> list[Sample]:
    """In an order that stays. Without the time at which it began, which no query asks for."""
    (metric,) = family.children[values].collect()
    created = f"{metric.name}_created"
    return [sample for sample in metric.samples if sample.name != created]
