"""Units of the charts, and how numbers of each read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _


@dataclass(frozen=True)
class Unit:
    """`axis` and `hover` are d3 formats; `tick` follows each number on the axis, after a space.

    d3 writes an SI prefix right at the number (500m), so what has a `tick` or is often below one has none: 0.5 s.

    `reads`: how the page's script writes a newest value: in ms below a second, whole, with an SI prefix, or plain.
    """

    text: Promise | str
    axis: str
    hover: str
    tick: str
    reads: Literal["seconds", "whole", "prefixed", "plain"]

    @property
    def after(self) -> str:
        """What follows a number on hover."""
        return self.tick or ("" if self.reads == "plain" else f" {self.text}")


SECONDS = Unit("s", ".3~r", ".3~r", " s", "seconds")
TOKENS_PER_SECOND = Unit("tok/s", ".2~s", ".3~s", "", "prefixed")
REQUESTS_PER_SECOND = Unit(_("req/s"), ",.3~r", ".3~r", "", "prefixed")
REQUESTS = Unit(_("requests"), ".2~s", ".3~s", "", "plain")
PERCENT = Unit("%", ".0f", ".1f", " %", "whole")
CELSIUS = Unit("°C", ".0f", ".0f", " °C", "whole")
WATTS = Unit("W", ",.3~r", ",.3~r", " W", "prefixed")
