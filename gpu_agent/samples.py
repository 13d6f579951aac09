"""One measured number, on its way to the control plane."""

from __future__ import annotations

from typing import NamedTuple


class Sample(NamedTuple):
    """`at_ms`: Unix time at which it was so; 0: it is so now. The label `node` comes with sending."""

    name: str
    labels: dict[str, str]
    value: float
    at_ms: int
