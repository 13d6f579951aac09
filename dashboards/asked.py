"""What a viewer asked for in the page's address: a layer, a time, and a pool, a tenant or a node alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlencode

from django.utils.dateparse import parse_datetime

from dashboards.charts import FILTERS, LAYERS, Chart, Layer, Only
from dashboards.lines import Line, folded
from dashboards.readings import Reading, now_ms
from dashboards.spans import FIRST_SPAN, SPANS, Span, span_of

# Names of pools, tenants and nodes are shorter.
_NAME_MAX_CHARACTERS = 200
_LAYERS = {layer.name: layer for layer in LAYERS}


@dataclass(frozen=True)
class Asked:
    """`only`: the labels that were chosen, as pairs, so that it can be a key. `end_ms`: where a time ends that does
    not go on with the clock.
    """

    span: Span = FIRST_SPAN
    only: Only = ()
    layer_name: str = LAYERS[0].name
    end_ms: int | None = None

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> Asked:
        """From the parameters of an address. What makes no sense there is as good as not said."""
        names = {label: parameters.get(label, "")[:_NAME_MAX_CHARACTERS] for label in FILTERS}
        # Names hold no control characters, and PostgreSQL takes no NUL.
        only = tuple((label, name) for label, name in names.items() if name and name.isprintable())
        layer_name = parameters.get("layer", "")
        layer_name = layer_name if layer_name in _LAYERS else LAYERS[0].name
        named = SPANS.get(parameters.get("span", ""))
        between = None if named else _between(parameters.get("from", ""), parameters.get("to", ""))
        if between is None:
            return cls(named or FIRST_SPAN, only, layer_name)
        first, last = between
        span = span_of(last - first)
        return cls(span, only, layer_name, math.ceil(last / span.step_seconds) * span.step_ms)

    @property
    def layer(self) -> Layer:
        return _LAYERS[self.layer_name]

    @property
    def pool(self) -> str:
        return dict(self.only).get("pool", "")

    @property
    def tenant(self) -> str:
        return dict(self.only).get("tenant", "")

    @property
    def node(self) -> str:
        return dict(self.only).get("node", "")

    @property
    def newest_ms(self) -> int:
        """The last moment that is shown."""
        newest_ms = self.span.newest_ms(now_ms())
        return newest_ms if self.end_ms is None else min(self.end_ms, newest_ms)

    @property
    def time(self) -> dict[str, str]:
        """As parameters of an address: a span, or two moments."""
        if self.end_ms is None:
            return {"span": self.span.name}
        return {"from": str(self.end_ms // 1000 - self.span.seconds), "to": str(self.end_ms // 1000)}

    def query(self, **more: object) -> str:
        """Of an address of another layer, or of the live stream with `layer`."""
        return urlencode({**self.time, **dict(self.only), **more})

    def lines(self, reading: Reading, chart: Chart) -> list[Line]:
        return folded(chart, reading.lines.get(chart.name, ()))


def _between(first: str, last: str) -> tuple[float, float] | None:
    """Unix seconds. Without an end it is now; what has no beginning, or ends before it, is nothing."""
    begin, end = moment_of(first), moment_of(last)
    now = now_ms() / 1000
    end = now if end is None else min(end, now)
    return (begin, end) if begin is not None and 0 <= begin < end else None


def moment_of(text: str) -> float | None:
    """Of Unix seconds or ISO 8601, which is UTC where it names no zone."""
    try:
        moment = float(text)
    except ValueError:
        return _calendar(text)
    return moment if math.isfinite(moment) else None


def _calendar(text: str) -> float | None:
    try:
        moment = parse_datetime(text)
    except ValueError:
        return None
    return None if moment is None else _in_utc(moment).timestamp()


def _in_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
