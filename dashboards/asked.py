"""What a viewer asked for in the page's address: a span, and a pool or a node alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from dashboards.charts import Chart
from dashboards.lines import Line, folded
from dashboards.readings import Reading
from dashboards.spans import FIRST_SPAN, SPANS, Span

# Names of pools and nodes are shorter.
_NAME_MAX_CHARACTERS = 200


@dataclass(frozen=True)
class Asked:
    """`only`: the labels that lines must have, as pairs, so that it can be a key."""

    span: Span = FIRST_SPAN
    only: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> Asked:
        """From the parameters of an address. What makes no sense there is as good as not said."""
        names = {label: parameters.get(label, "")[:_NAME_MAX_CHARACTERS] for label in ("pool", "node")}
        # Names hold no control characters, and PostgreSQL takes no NUL.
        chosen = tuple((label, name) for label, name in names.items() if name and name.isprintable())
        return cls(SPANS.get(parameters.get("span", ""), FIRST_SPAN), chosen)

    @property
    def pool(self) -> str:
        return dict(self.only).get("pool", "")

    @property
    def node(self) -> str:
        return dict(self.only).get("node", "")

    def query(self, **more: object) -> str:
        return urlencode({"span": self.span.name, **dict(self.only), **more})

    def lines(self, reading: Reading, chart: Chart) -> list[Line]:
        """Of a reading, what was asked for."""
        only = dict(self.only)
        return folded(chart, (line for line in reading.lines.get(chart.name, ()) if line.within(only)))
