"""The charts of the page, as rows: what each asks, and how its numbers read.

Three layers, from what a user feels down to what causes it: a slow answer is either waited for (queue) or worked on
(engine), and an engine is bound by its KV cache or by its GPUs' compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from dashboards import units
from dashboards.spans import Span
from dashboards.units import Unit

_WINDOW = "$window"


@dataclass(frozen=True)
class Query:
    """One PromQL text, `$window` in place of the range; `recorded` asks recorded series for the same.

    `stat` names its lines where a chart has two queries. The second is `dotted`: the one to look at first is drawn
    through.
    """

    promql: str
    recorded: str
    stat: Promise | str = ""
    dotted: bool = False

    def over(self, span: Span) -> str:
        text = self.recorded if span.is_recorded else self.promql
        return text.replace(_WINDOW, f"{span.window_seconds}s")


@dataclass(frozen=True)
class Fold:
    """Lines that differ by `label` alone become one, after a viewer's choice: `by` max or sum at each step.

    `tells_each`: hovering names the value of each of them.
    """

    label: str
    by: Callable[[Iterable[float]], float]
    tells_each: bool = False


@dataclass(frozen=True)
class Chart:
    """`by`: the labels that name a line, but where their value is `unsaid`.

    `recorded_note` stands in place of `note` where recorded series are drawn, if those show something else.
    """

    name: str
    title: Promise
    note: Promise
    unit: Unit
    by: tuple[str, ...]
    queries: tuple[Query, ...]
    fold: Fold | None = None
    recorded_note: Promise | None = None
    unsaid: str = ""
    # Where the axis begins and what it reaches at least, so that noise does not look like a mountain.
    lowest: float = 0
    highest: float | None = None
    threshold: float | None = None

    def note_over(self, span: Span) -> str:
        return str(self.recorded_note if span.is_recorded and self.recorded_note else self.note)


@dataclass(frozen=True)
class Layer:
    title: Promise
    charts: tuple[Chart, ...]


def _rate(name: str, by: str) -> str:
    return f"sum by ({by}) (rate({name}[{_WINDOW}]))"


def _quantile(share: str, name: str, by: str) -> str:
    return f"histogram_quantile({share}, {_rate(f'{name}_bucket', f'{by}, le')})"


def _gauge(aggregation: str, name: str, by: str) -> str:
    return f"{aggregation} by ({by}) (last_over_time({name}[{_WINDOW}]))"


def _mean_gauge(aggregation: str, name: str, by: str) -> str:
    """Of what jumps between two samples, so that one sample a point would draw where it was read, not how it was."""
    return f"{aggregation} by ({by}) (avg_over_time({name}[{_WINDOW}]))"


def _mean(record: str) -> str:
    return f"avg_over_time({record}[{_WINDOW}])"


def _highest(record: str) -> str:
    """Of quantiles, of which there is no mean: the worst 5 minutes. Of gauges: what is not to be missed."""
    return f"max_over_time({record}[{_WINDOW}])"


_TTFT, _GATEWAY_QUEUE = "headworks_gateway_ttft_seconds", "headworks_gateway_queue_seconds"
_ENGINE_QUEUE, _ENGINE_E2E = "headworks_engine_queue_seconds", "headworks_engine_e2e_seconds"
_KV = "headworks_engine_kv_cache_usage_ratio"

_USERS = Layer(
    _("What users feel"),
    (
        Chart(
            "ttft",
            _("Time to first token (TTFT)"),
            _("Per pool, at the gateways: p95 drawn through, p50 dotted."),
            units.SECONDS,
            ("pool",),
            (
                Query(_quantile("0.95", _TTFT, "pool"), _highest(f"pool:{_TTFT}:p95_rate5m"), "p95"),
                Query(_quantile("0.5", _TTFT, "pool"), _highest(f"pool:{_TTFT}:p50_rate5m"), "p50", True),
            ),
            recorded_note=_(
                "Per pool, at the gateways, each point its worst 5 minutes: p95 drawn through, p50 dotted."
            ),
        ),
        Chart(
            "tokens",
            _("Tokens per tenant"),
            _("Prompt and output tokens that were settled."),
            units.TOKENS_PER_SECOND,
            ("tenant",),
            (
                Query(
                    f"{_rate('headworks_gateway_prompt_tokens_total', 'tenant, pool')} + "
                    f"{_rate('headworks_gateway_generation_tokens_total', 'tenant, pool')}",
                    _mean("tenant_pool:headworks_gateway_tokens:rate1m"),
                ),
            ),
            fold=Fold("pool", sum),
        ),
        Chart(
            "requests",
            _("Requests by outcome"),
            _("With the named reason of each refusal and failure."),
            units.REQUESTS_PER_SECOND,
            ("outcome", "reason"),
            (
                Query(
                    _rate("headworks_gateway_requests_total", "outcome, reason, pool"),
                    _mean("pool:headworks_gateway_requests:rate1m"),
                ),
            ),
            fold=Fold("pool", sum),
            # The gateways' reason of a request that went well.
            unsaid="none",
        ),
    ),
)
_QUEUES = Layer(
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
                    _quantile("0.95", _GATEWAY_QUEUE, "pool"),
                    _highest(f"pool:{_GATEWAY_QUEUE}:p95_rate5m"),
                    _("gateway p95"),
                ),
                # A mean: the smallest bucket of vLLM's histogram is 0.3 s, and a quantile below it is invented.
                Query(
                    f"{_rate(f'{_ENGINE_QUEUE}_sum', 'pool')} / {_rate(f'{_ENGINE_QUEUE}_count', 'pool')}",
                    f"{_mean(f'pool:{_ENGINE_QUEUE}_sum:rate1m')} / {_mean(f'pool:{_ENGINE_QUEUE}_count:rate1m')}",
                    _("engine mean"),
                    True,
                ),
            ),
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
                    f"({_rate(f'{_ENGINE_E2E}_sum', 'pool')} - {_rate(f'{_ENGINE_QUEUE}_sum', 'pool')}) / "
                    f"{_rate(f'{_ENGINE_E2E}_count', 'pool')}",
                    f"({_mean(f'pool:{_ENGINE_E2E}_sum:rate1m')} - {_mean(f'pool:{_ENGINE_QUEUE}_sum:rate1m')}) / "
                    f"{_mean(f'pool:{_ENGINE_E2E}_count:rate1m')}",
                ),
            ),
        ),
        Chart(
            "in_engines",
            _("Requests in the engines"),
            _("Per pool: waiting drawn through, running dotted."),
            units.REQUESTS,
            ("pool",),
            (
                Query(
                    _gauge("sum", "headworks_engine_requests_waiting", "pool"),
                    _mean("pool:headworks_engine_requests_waiting:sum"),
                    _("waiting"),
                ),
                Query(
                    _gauge("sum", "headworks_engine_requests_running", "pool"),
                    _mean("pool:headworks_engine_requests_running:sum"),
                    _("running"),
                    True,
                ),
            ),
        ),
    ),
)
_HARDWARE = Layer(
    _("What bounds the engines"),
    (
        Chart(
            "kv",
            _("KV cache use"),
            _("Per engine. Near the line an engine preempts requests."),
            units.PERCENT,
            ("engine",),
            (
                Query(
                    f"100 * {_gauge('max', _KV, 'node, pool, engine')}",
                    f"100 * {_highest(f'engine:{_KV}:max')}",
                ),
            ),
            # One that moved to another node is still that engine.
            fold=Fold("node", max),
            recorded_note=_("Per engine, each point its highest. Near the line an engine preempts requests."),
            highest=100,
            threshold=95,
        ),
        Chart(
            "compute",
            _("GPU compute"),
            _("Utilisation per node, mean of its GPUs."),
            units.PERCENT,
            ("node",),
            (Query(_mean_gauge("avg", "DCGM_FI_DEV_GPU_UTIL", "node"), _mean("node:DCGM_FI_DEV_GPU_UTIL:avg")),),
            highest=100,
        ),
        Chart(
            "temperature",
            _("GPU temperature"),
            _("Per node its hottest GPU; hover for each."),
            units.CELSIUS,
            ("node",),
            (Query(_gauge("max", "DCGM_FI_DEV_GPU_TEMP", "node, gpu"), _highest("node:DCGM_FI_DEV_GPU_TEMP:max")),),
            fold=Fold("gpu", max, tells_each=True),
            recorded_note=_("Per node its hottest GPU, each point the highest."),
            lowest=20,
            highest=90,
        ),
        Chart(
            "power",
            _("GPU power"),
            _("Per node, sum of its GPUs."),
            units.WATTS,
            ("node",),
            (Query(_mean_gauge("sum", "DCGM_FI_DEV_POWER_USAGE", "node"), _mean("node:DCGM_FI_DEV_POWER_USAGE:sum")),),
        ),
    ),
)
LAYERS = (_USERS, _QUEUES, _HARDWARE)
CHARTS = tuple(chart for layer in LAYERS for chart in layer.charts)
