"""Where a request waits, and why it is not let in."""

from __future__ import annotations

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from dashboards import units
from dashboards.charts.experience import NO_TRAFFIC
from dashboards.charts.promql import gauge, highest, mean, mean_of_histogram, quantile, rate
from dashboards.charts.rows import Chart, Layer, Query, Section
from dashboards.charts.statuses import CAPACITY, LIMITS

_POOL, _POOL_TENANT, _POOL_NODE = ("pool",), ("pool", "tenant"), ("pool", "node")
_GATEWAY_QUEUE, _REQUESTS = "headworks_gateway_queue_seconds", "headworks_gateway_requests_total"
_ENGINE_QUEUE, _ENGINE_E2E = "headworks_engine_queue_seconds", "headworks_engine_e2e_seconds"
_RECORDED_REQUESTS = "pool:headworks_gateway_requests:rate1m"
_TOKENS = tuple(f"headworks_gateway_{kind}_tokens_total" for kind in ("prompt", "generation"))
NO_ENGINES = _("Agents read it from engines. Are any configured, and do their nodes' agents report?")
_NO_GATEWAY = _("Gateways tell of it. Is one connected?")


def _recorded_mean(name: str, part: str) -> str:
    return mean(f"pool:{name}_{part}:rate1m")


def _refused(name: str, title: Promise, note: Promise, reasons: tuple[str, ...], absent: Promise) -> Chart:
    where = f'reason=~"{"|".join(reasons)}"'
    recorded = f"sum by (reason) ({mean(_RECORDED_REQUESTS, where)})"
    return Chart(
        name,
        title,
        note,
        units.REQUESTS_PER_SECOND,
        ("reason",),
        (Query(rate(_REQUESTS, "reason", where), recorded),),
        _POOL_TENANT,
        absent,
        recorded_takes=_POOL,
    )


_WAITING = Section(
    _("Where a request waits"),
    (
        Chart(
            "queue",
            _("Queue time"),
            _("Per pool: p95 at the gateways drawn through, mean within the engines dotted."),
            units.SECONDS,
            ("pool",),
            (
                Query(
                    quantile("0.95", _GATEWAY_QUEUE, "pool"),
                    highest(f"pool:{_GATEWAY_QUEUE}:p95_rate5m"),
                    _("gateway p95"),
                ),
                # A mean: the smallest bucket of vLLM's histogram is 0.3 s, and a quantile below it is invented.
                Query(
                    mean_of_histogram(_ENGINE_QUEUE, "pool"),
                    f"{_recorded_mean(_ENGINE_QUEUE, 'sum')} / {_recorded_mean(_ENGINE_QUEUE, 'count')}",
                    _("engine mean"),
                    "dotted",
                ),
            ),
            _POOL,
            NO_TRAFFIC,
            recorded_note=_(
                "Per pool: p95 at the gateways in its worst 5 minutes drawn through, mean within the engines dotted."
            ),
        ),
        Chart(
            "engine_time",
            _("Engine time"),
            _("Per pool: mean time that an engine works on a request, its queue left out."),
            units.SECONDS,
            ("pool",),
            (
                Query(
                    f"({rate(f'{_ENGINE_E2E}_sum', 'pool')} - {rate(f'{_ENGINE_QUEUE}_sum', 'pool')}) / "
                    f"{rate(f'{_ENGINE_E2E}_count', 'pool')}",
                    f"({_recorded_mean(_ENGINE_E2E, 'sum')} - {_recorded_mean(_ENGINE_QUEUE, 'sum')}) / "
                    f"{_recorded_mean(_ENGINE_E2E, 'count')}",
                ),
            ),
            _POOL_NODE,
            NO_ENGINES,
            recorded_takes=_POOL,
        ),
        Chart(
            "waiting",
            _("Requests waiting"),
            _("Per pool: for a place at the gateways drawn through, within the engines dotted."),
            units.REQUESTS,
            ("pool",),
            (
                Query(
                    gauge("sum", "headworks_gateway_queue_length", "pool"),
                    mean("pool:headworks_gateway_queue_length:sum"),
                    _("gateways"),
                ),
                Query(
                    gauge("sum", "headworks_engine_requests_waiting", "pool"),
                    mean("pool:headworks_engine_requests_waiting:sum"),
                    _("engines"),
                    "dotted",
                ),
            ),
            _POOL,
            _NO_GATEWAY,
        ),
        Chart(
            "waiting_tokens",
            _("Tokens waiting"),
            _("Per pool: prompt and expected output tokens of the requests that wait at the gateways."),
            units.TOKENS,
            ("pool",),
            (
                Query(
                    gauge("sum", "headworks_gateway_queue_tokens", "pool"),
                    mean("pool:headworks_gateway_queue_tokens:sum"),
                ),
            ),
            _POOL,
            _NO_GATEWAY,
        ),
    ),
)
_REFUSALS = Section(
    _("Who is not let in"),
    (
        _refused(
            "ttl_drops",
            _("Dropped in the queue"),
            _("Requests whose time to wait was over, or would have been before their turn."),
            ("queue_timeout", "cannot_finish_in_time"),
            _("No request waited too long."),
        ),
        _refused(
            "over_limits",
            _("Refused with 429"),
            _("By reason: a tenant is over its own share, and no one else is hurt."),
            LIMITS,
            _("No tenant is over a limit of its own."),
        ),
        _refused(
            "no_capacity",
            _("Refused with 503"),
            _("By reason: there is no capacity now."),
            CAPACITY,
            _("No request was refused for want of capacity."),
        ),
        Chart(
            "breakers",
            _("Open breakers"),
            _("Per engine: at how many gateways its circuit breaker is not closed."),
            units.GATEWAYS,
            ("pool", "engine"),
            (Query(gauge("sum", "headworks_gateway_breaker_state", "pool, engine", 'state!="closed"')),),
            _POOL,
            _NO_GATEWAY,
        ),
    ),
)
_ROOM = Section(
    _("What there is room for"),
    (
        Chart(
            "kv_reserved",
            _("KV cache reserved"),
            _("Per pool: tokens that running requests may need drawn through, what others hold dotted."),
            units.TOKENS,
            ("pool",),
            (
                Query(gauge("sum", "headworks_gateway_kv_reserved_tokens", "pool"), "", _("reserved")),
                # Every gateway sees the same others.
                Query(gauge("max", "headworks_gateway_kv_others_tokens", "pool"), "", _("others"), "dotted"),
            ),
            _POOL,
            _NO_GATEWAY,
        ),
        Chart(
            "places",
            _("Requests let in"),
            _("Per pool: requests at its engines drawn through, how many the gateways let in at a time dotted."),
            units.REQUESTS,
            ("pool",),
            (
                Query(gauge("sum", "headworks_gateway_pool_requests", "pool"), "", _("now")),
                Query(gauge("sum", "headworks_gateway_concurrency_limit", "pool"), "", _("limit"), "dotted"),
            ),
            _POOL,
            _NO_GATEWAY,
        ),
    ),
)
_SHARES = Section(
    _("Who gets how much"),
    (
        Chart(
            "tokens",
            _("Tokens per tenant"),
            _("Prompt and output tokens that were settled."),
            units.TOKENS_PER_SECOND,
            ("tenant",),
            (
                Query(
                    " + ".join(rate(name, "tenant") for name in _TOKENS),
                    f"sum by (tenant) ({mean('tenant_pool:headworks_gateway_tokens:rate1m')})",
                ),
            ),
            _POOL_TENANT,
            NO_TRAFFIC,
        ),
        Chart(
            "fairness",
            _("Queue time per tenant"),
            _("p95. Fair is: alike within a class. One far above the others waits for its own quota, or is starved."),
            units.SECONDS,
            ("tenant",),
            (
                Query(
                    quantile("0.95", _GATEWAY_QUEUE, "tenant"),
                    highest(f"tenant:{_GATEWAY_QUEUE}:p95_rate5m"),
                ),
            ),
            _POOL_TENANT,
            NO_TRAFFIC,
            recorded_takes=("tenant",),
            recorded_note=_("p95, each point its worst 5 minutes. Fair is: alike within a class."),
        ),
        Chart(
            "budget",
            _("Budget of the day"),
            _("Per tenant: used part of its daily tokens, at the gateway that counts most."),
            units.PERCENT,
            ("tenant",),
            (Query(f"100 * {gauge('max', 'headworks_gateway_daily_budget_used_ratio', 'tenant')}"),),
            ("tenant",),
            _("No tenant with a daily budget asked for anything."),
            highest=100,
            threshold=100,
        ),
    ),
)
QUEUE = Layer(
    "queue",
    "queue/",
    _("Queue and admission"),
    _("A long queue and a short engine time: too little capacity. The other way round: long prompts, or slow engines."),
    (_WAITING, _REFUSALS, _ROOM, _SHARES),
)
