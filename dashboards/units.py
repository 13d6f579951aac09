"""Units of the charts, and how numbers of each read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _


@dataclass(frozen=True)
class Unit:
    """`axis` and `hover` are d3 formats; with `ticks` its text follows each number on the axis, after a space.

    d3 writes an SI prefix right at the number (500m), so what has `ticks` or is often below one has none: 0.5 s.

    `reads`: how the page's script writes a newest value: in ms below a second, whole, with an SI prefix, or plain.

    `grafana`: its name there; `si:` gives a unit of ours prefixes.
    """

    text: Promise | str
    axis: str
    hover: str
    ticks: bool
    reads: Literal["seconds", "whole", "prefixed", "plain"]
    grafana: str = "short"

    @property
    def after(self) -> str:
        """What follows a number on hover."""
        return "" if self.reads == "plain" else f" {self.text}"

    @property
    def tick(self) -> str:
        return f" {self.text}" if self.ticks else ""


SECONDS = Unit(_("s"), ".3~r", ".3~r", True, "seconds", "s")
TOKENS_PER_SECOND = Unit("tok/s", ".2~s", ".3~s", False, "prefixed", "si:tok/s")
REQUESTS_PER_SECOND = Unit(_("req/s"), ",.3~r", ".3~r", False, "prefixed", "reqps")
PER_SECOND = Unit(_("per s"), ",.3~r", ".3~r", False, "prefixed", "cps")
REQUESTS = Unit(_("requests"), ".2~s", ".3~s", False, "plain")
TOKENS = Unit(_("tokens"), ".2~s", ".3~s", False, "prefixed")
GATEWAYS = Unit(_("gateways"), ",.3~r", ".3~r", False, "plain")
GPUS = Unit(_("GPUs"), ",.3~r", ".3~r", False, "plain")
ERRORS = Unit(_("errors"), ",.3~r", ".3~r", False, "plain")
PLAIN = Unit("", ",.3~r", ".3~r", False, "plain")
PERCENT = Unit("%", ".0f", ".1f", True, "whole", "percent")
CELSIUS = Unit("°C", ".0f", ".0f", True, "whole", "celsius")
MEGAHERTZ = Unit("MHz", ",.0f", ",.0f", True, "whole", "si:MHz")
BYTES = Unit("B", ".2~s", ".3~s", False, "prefixed", "decbytes")
BYTES_PER_SECOND = Unit("B/s", ".2~s", ".3~s", False, "prefixed", "Bps")
WATTS = Unit("W", ",.3~r", ",.3~r", True, "prefixed", "watt")
