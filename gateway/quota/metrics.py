"""How limits are counted, as a scrape sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


class LedgerMoment(NamedTuple):
    """`requests_*`: decided with all gateways, and by this one's share; `waiting` and `lapsed`: ends of requests.

    `days`: used part of the day's tokens of each tenant that has a budget and asked for something, 1 being all of it.
    `unreadable`: the tenants that are decided by this gateway's share alone, for their state at the Redis is broken.
    """

    is_shared: bool
    requests_shared: int
    requests_local: int
    waiting: int
    lapsed: int
    unreadable: tuple[str, ...] = ()
    days: Mapping[str, float] = {}


def ledger_families(now: LedgerMoment) -> Iterator[Metric]:
    mode = GaugeMetricFamily(
        "headworks_gateway_ledger",
        "1 for how limits are held: shared by all gateways on their Redis, or local, as this gateway's share.",
        labels=["mode"],
    )
    mode.add_metric(["shared"], float(now.is_shared))
    mode.add_metric(["local"], float(not now.is_shared))
    requests = CounterMetricFamily(
        "headworks_gateway_ledger_requests",
        "Requests whose quota was decided, by how limits were held.",
        labels=["mode"],
    )
    requests.add_metric(["shared"], now.requests_shared)
    requests.add_metric(["local"], now.requests_local)
    waiting = GaugeMetricFamily(
        "headworks_gateway_ledger_waiting",
        "What waits to be told to the Redis, ends of requests above all.",
        now.waiting,
    )
    lapsed = CounterMetricFamily(
        "headworks_gateway_ledger_lapsed",
        "Ends of requests that the Redis was not told in time.",
        now.lapsed,
    )
    unreadable = GaugeMetricFamily(
        "headworks_gateway_ledger_unreadable",
        "1 for each tenant whose state at the Redis cannot be read; it has this gateway's share.",
        labels=["tenant"],
    )
    for tenant in now.unreadable:
        unreadable.add_metric([tenant], 1)
    used = GaugeMetricFamily(
        "headworks_gateway_daily_budget_used_ratio",
        "Used part of the tenant's tokens of the day, as they are counted here; 1 or more: spent.",
        labels=["tenant"],
    )
    for tenant, ratio in now.days.items():
        used.add_metric([tenant], ratio)
    yield from (mode, requests, waiting, lapsed, unreadable, used)
