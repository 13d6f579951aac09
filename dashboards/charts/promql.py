"""Parts of the charts' PromQL: `$window` and `$only` are filled in when a page asks (rows.py)."""

from __future__ import annotations

from dashboards.charts.rows import ONLY, WINDOW


def selector(name: str, where: str = "") -> str:
    return f"{name}{{{where},{ONLY}}}" if where else f"{name}{{{ONLY}}}"


def ranged(name: str, where: str = "") -> str:
    return f"{selector(name, where)}[{WINDOW}]"


def rate(name: str, by: str, where: str = "") -> str:
    return f"sum by ({by}) (rate({ranged(name, where)}))"


def quantile(share: str, name: str, by: str) -> str:
    return f"histogram_quantile({share}, {rate(f'{name}_bucket', f'{by}, le')})"


def mean_of_histogram(name: str, by: str) -> str:
    return f"{rate(f'{name}_sum', by)} / {rate(f'{name}_count', by)}"


def gauge(aggregation: str, name: str, by: str, where: str = "") -> str:
    """The newest sample of the window: nothing where there is none."""
    return f"{aggregation} by ({by}) (last_over_time({ranged(name, where)}))"


def mean_gauge(aggregation: str, name: str, by: str, where: str = "") -> str:
    """Of what jumps between two samples, so that one sample a point would draw where it was read, not how it was."""
    return f"{aggregation} by ({by}) (avg_over_time({ranged(name, where)}))"


def mean(record: str, where: str = "") -> str:
    return f"avg_over_time({ranged(record, where)})"


def highest(record: str, where: str = "") -> str:
    """Of quantiles, of which there is no mean: the worst 5 minutes. Of gauges: what is not to be missed."""
    return f"max_over_time({ranged(record, where)})"


def lowest(record: str, where: str = "") -> str:
    return f"min_over_time({ranged(record, where)})"
