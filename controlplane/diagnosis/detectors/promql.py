"""Pieces of PromQL that detectors put their questions together from.

A series is written with its matchers where it has any. All look back over the detector's window.
"""

from __future__ import annotations

from controlplane.diagnosis.detector import WINDOW

# The window before the last one.
BEFORE = f" offset {WINDOW}"


def per_second(series: str, *by: str, offset: str = "") -> str:
    """A counter's rate."""
    return f"sum by ({', '.join(by)}) (rate({series}[{WINDOW}]{offset}))"


def counted(series: str, *by: str, offset: str = "") -> str:
    """By how much a counter grew in the window."""
    return f"sum by ({', '.join(by)}) (increase({series}[{WINDOW}]{offset}))"


def quantile(share: float, histogram: str, *by: str, offset: str = "") -> str:
    return f"histogram_quantile({share:g}, {per_second(f'{histogram}_bucket', 'le', *by, offset=offset)})"


def mean(histogram: str, *by: str) -> str:
    """Of all observations, where there were any: exact also where buckets are coarse."""
    return f"{per_second(f'{histogram}_sum', *by)} / ({per_second(f'{histogram}_count', *by)} > 0)"


def typical(gauge: str, *by: str, across: str = "sum") -> str:
    """A gauge's median over the window: what lasts for less than half of it does not show, and soon shows when it does.

    `across`: how series that agree in `by` are put together.
    """
    return f"{across} by ({', '.join(by)}) (quantile_over_time(0.5, {gauge}[{WINDOW}]))"


def peak(gauge: str, *by: str) -> str:
    """The most that a gauge had in the window."""
    return f"max by ({', '.join(by)}) (max_over_time({gauge}[{WINDOW}]))"
