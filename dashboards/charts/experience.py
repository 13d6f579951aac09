"""What users feel: how long answers take, how many keep what was promised, and how the others end."""

from __future__ import annotations

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from dashboards import units
from dashboards.charts.promql import highest, mean, quantile, rate
from dashboards.charts.rows import Chart, Layer, Look, Query, Section

_POOL_TENANT = ("pool", "tenant")
_REQUESTS, _SLO = "headworks_gateway_requests_total", "headworks_gateway_slo_requests_total"
_BETWEEN = "headworks_engine_inter_token_latency_seconds"
_RECORDED_REQUESTS, _RECORDED_SLO = "pool:headworks_gateway_requests:rate1m", "pool:headworks_gateway_slo:rate1m"
_MET, _MISSED, _GOODPUT = 'outcome="met"', 'outcome="missed"', 'slo="goodput"'
_TIMEOUTS = 'reason=~"queue_timeout|cannot_finish_in_time|deadline_exceeded"'
_CANCELLED = 'outcome="cancelled"'
# p95 first: it is what pools promise.
_STATS: tuple[tuple[str, str, Look], ...] = (
    ("p95", "0.95", "drawn"), ("p50", "0.5", "dotted"), ("p99", "0.99", "dashed"))  # fmt: skip

NO_TRAFFIC = _("Gateways tell of it once requests are served. Are any connected, and do clients ask?")
_NO_PROMISE = _("A pool that promises nothing has none: give it SLOs, then its requests are judged by them.")
_PER_POOL = _("Per pool, at the gateways.")
_WORST = _("Per pool, at the gateways, each point its worst 5 minutes.")


def _latency(name: str, title: Promise, note: Promise, recorded_note: Promise) -> Chart:
    metric = f"headworks_gateway_{name}_seconds"
    return Chart(
        name,
        title,
        note,
        units.SECONDS,
        ("pool",),
        tuple(
            Query(quantile(share, metric, "pool"), highest(f"pool:{metric}:{stat}_rate5m"), stat, look)
            for stat, share, look in _STATS
        ),
        _POOL_TENANT,
        NO_TRAFFIC,
        recorded_takes=("pool",),
        recorded_note=recorded_note,
    )


def _of_pools(vector: str) -> str:
    return f"sum by (pool) ({vector})"


def _part_kept(missed: str, judged: str) -> str:
    """Per cent. A pool that has no series of what was missed has missed nothing."""
    return f"100 - 100 * ({missed} or 0 * {judged}) / {judged}"


_TIMES = Section(
    _("How long answers take"),
    (
        _latency("ttft", _("Time to first token (TTFT)"), _PER_POOL, _WORST),
        _latency("tpot", _("Time per output token (TPOT)"), _PER_POOL, _WORST),
        Chart(
            "inter_token",
            _("Between two tokens"),
            _("Per pool, within the engines: a stall in a stream shows here before it does in a mean."),
            units.SECONDS,
            ("pool",),
            tuple(Query(quantile(share, _BETWEEN, "pool"), "", stat, look) for stat, share, look in _STATS),
            ("pool", "node"),
            _("vLLM and SGLang tell of it, other engines do not."),
        ),
        _latency("e2e", _("Whole answer (E2E)"), _PER_POOL, _WORST),
    ),
)
_PROMISES = Section(
    _("How many are served as promised"),
    (
        Chart(
            "goodput",
            _("Goodput"),
            _("Per pool: requests that kept every time promised drawn through, those that did not dotted."),
            units.REQUESTS_PER_SECOND,
            ("pool",),
            (
                Query(rate(_SLO, "pool", _MET), mean(_RECORDED_SLO, f"{_GOODPUT},{_MET}"), _("kept")),
                Query(rate(_SLO, "pool", _MISSED), mean(_RECORDED_SLO, f"{_GOODPUT},{_MISSED}"), _("missed"), "dotted"),
            ),
            _POOL_TENANT,
            _NO_PROMISE,
            recorded_takes=("pool",),
        ),
        Chart(
            "kept",
            _("Promises kept"),
            _("Per pool: part of the judged requests that kept every time promised."),
            units.PERCENT,
            ("pool",),
            (
                Query(
                    _part_kept(rate(_SLO, "pool", _MISSED), rate(_SLO, "pool")),
                    _part_kept(
                        _of_pools(mean(_RECORDED_SLO, f"{_GOODPUT},{_MISSED}")),
                        _of_pools(mean(_RECORDED_SLO, _GOODPUT)),
                    ),
                ),
            ),
            _POOL_TENANT,
            _NO_PROMISE,
            recorded_takes=("pool",),
            highest=100,
        ),
    ),
)
_ENDS = Section(
    _("How requests end"),
    (
        Chart(
            "requests",
            _("Requests by outcome"),
            _("With the named reason of each refusal and failure."),
            units.REQUESTS_PER_SECOND,
            ("outcome", "reason"),
            (Query(rate(_REQUESTS, "outcome, reason"), f"sum by (outcome, reason) ({mean(_RECORDED_REQUESTS)})"),),
            _POOL_TENANT,
            NO_TRAFFIC,
            recorded_takes=("pool",),
            # The gateways' reason of a request that went well.
            unsaid="none",
        ),
        Chart(
            "timeouts",
            _("Timeouts"),
            _("By reason: in the queue, before it since the turn would come too late, or over the request's deadline."),
            units.REQUESTS_PER_SECOND,
            ("reason",),
            (
                Query(
                    rate(_REQUESTS, "reason", _TIMEOUTS),
                    f"sum by (reason) ({mean(_RECORDED_REQUESTS, _TIMEOUTS)})",
                ),
            ),
            _POOL_TENANT,
            _("No request ran out of time."),
            recorded_takes=("pool",),
        ),
        Chart(
            "cancels",
            _("Clients that left"),
            _("Per pool: requests whose client closed the connection before the end."),
            units.REQUESTS_PER_SECOND,
            ("pool",),
            (Query(rate(_REQUESTS, "pool", _CANCELLED), _of_pools(mean(_RECORDED_REQUESTS, _CANCELLED))),),
            _POOL_TENANT,
            _("No client left before its answer was whole."),
            recorded_takes=("pool",),
        ),
        Chart(
            "streams_cut",
            _("Streams cut"),
            _("Per engine: answers that had begun and broke off, with the reason."),
            units.REQUESTS_PER_SECOND,
            ("engine", "reason"),
            (Query(rate("headworks_gateway_streams_cut_total", "engine, reason")),),
            ("pool",),
            _("No answer broke off."),
        ),
    ),
)
EXPERIENCE = Layer(
    "experience",
    "",
    _("User experience"),
    _("What users feel: is anyone hurt, and who."),
    (_TIMES, _PROMISES, _ENDS),
)
