"""The control plane's own charts, from what it says of itself: a board of Grafana alone, in English."""

from __future__ import annotations

from dashboards import units
from dashboards.charts.rows import WINDOW, Chart, Layer, Query, Section

_ABSENT = "The control plane writes it while one of its workers runs."


def _rate(name: str, by: str, where: str = "") -> str:
    return f"sum by ({by}) (rate(headworks_{name}{where}[{WINDOW}]))"


def _p95(name: str) -> str:
    return f"histogram_quantile(0.95, sum by (le) (rate(headworks_{name}_bucket[{WINDOW}])))"


def _newest(aggregation: str, name: str, by: str = "") -> str:
    """Written every few seconds, by the worker or by each web process."""
    return f"{aggregation}{f' by ({by})' if by else ''} (headworks_{name})"


_CONVERGENCE = Section(
    "Configuration",
    (
        Chart(
            "targets",
            "Targets",
            "By kind and state.",
            units.PLAIN,
            ("kind", "state"),
            (Query(_newest("max", "targets", "kind, state")),),
            (),
            _ABSENT,
        ),
        Chart(
            "config_behind",
            "Behind the newest revision",
            "Per target: how long the newest revision waits to be applied. 0: it is.",
            units.SECONDS,
            ("kind", "node", "gateway"),
            (Query(f"topk(10, {_newest('max', 'target_config_behind_seconds', 'kind, node, gateway')})"),),
            (),
            _ABSENT,
        ),
        Chart(
            "config_refused",
            "Targets that are lost, or refuse",
            "Lost: nothing is heard of it. Refused: it keeps the last configuration that it could use.",
            units.PLAIN,
            (),
            (
                Query("sum(max by (kind, node, gateway) (headworks_target_lost))", "", "lost"),
                Query("sum(max by (kind, node, gateway) (headworks_target_config_refused))", "", "refused", "dotted"),
            ),
            (),
            _ABSENT,
        ),
        Chart(
            "publish",
            "Publishing and writing",
            "p95 of making a revision drawn through; p95 of the time that a write lets no other in dotted.",
            units.SECONDS,
            (),
            (
                Query(_p95("publish_seconds"), "", "publish"),
                Query(_p95("write_seconds"), "", "write", "dotted"),
            ),
            (),
            "Nothing was published in this time.",
        ),
    ),
)
_WEB = Section(
    "Web processes and workers",
    (
        Chart(
            "web_requests",
            "Requests",
            "By status.",
            units.REQUESTS_PER_SECOND,
            ("status",),
            (Query(_rate("requests_total", "status")),),
            (),
            _ABSENT,
        ),
        Chart(
            "web_errors",
            "Requests that failed",
            "By route, status 500 and above.",
            units.REQUESTS_PER_SECOND,
            ("route", "status"),
            (Query(_rate("requests_total", "route, status", '{status=~"5.."}')),),
            (),
            "No request failed.",
        ),
        Chart(
            "streams",
            "Config streams",
            "Per web process: targets that are connected to it.",
            units.PLAIN,
            ("instance",),
            (Query(_newest("max", "config_streams", "instance")),),
            (),
            _ABSENT,
        ),
        Chart(
            "worker",
            "Since a worker last worked",
            "It grows where none runs: no rule is evaluated then, and nothing delivered.",
            units.SECONDS,
            (),
            (Query("time() - max(headworks_worker_seen_time_seconds)"),),
            (),
            _ABSENT,
        ),
    ),
)
_STORE = Section(
    "Metric store",
    (
        Chart(
            "samples",
            "Samples taken",
            "By remote write, of agents, gateways and metric writers.",
            units.PER_SECOND,
            (),
            (Query(f"sum(rate(headworks_telemetry_samples_total[{WINDOW}]))", "", "samples"),),
            (),
            "Nobody writes here.",
        ),
        Chart(
            "refused_bodies",
            "Writes refused or lost",
            "By the first reason that their sender was given.",
            units.PER_SECOND,
            ("reason",),
            (
                Query(_rate("telemetry_refused_bodies_total", "reason")),
                Query(f"sum(rate(headworks_telemetry_lost_bodies_total[{WINDOW}]))", "", "lost", "dotted"),
            ),
            (),
            "None was refused.",
        ),
        Chart(
            "store_bytes",
            "Size of the store",
            "By file; what it may have is dotted.",
            units.BYTES,
            ("file",),
            (
                Query(_newest("max", "metric_store_bytes", "file")),
                Query(_newest("max", "metric_store_limit_bytes", "file"), "", "limit", "dotted"),
            ),
            (),
            _ABSENT,
        ),
        Chart(
            "disk",
            "Disk left",
            "Of the file system of the data directory.",
            units.PERCENT,
            ("path",),
            (
                Query(
                    f"100 * {_newest('min', 'disk_available_bytes', 'path')} / {_newest('max', 'disk_bytes', 'path')}"
                ),
            ),
            (),
            _ABSENT,
            highest=100,
        ),
    ),
)
_ALERTING = Section(
    "Rules and deliveries",
    (
        Chart(
            "incidents",
            "Incidents that go on",
            "By severity.",
            units.PLAIN,
            ("severity",),
            (Query(_newest("max", "incidents_firing", "severity")),),
            (),
            _ABSENT,
        ),
        Chart(
            "rules",
            "Rules that fail",
            "Alerting rules drawn through, recording rules dotted.",
            units.PLAIN,
            (),
            (
                Query("max(headworks_rules_failing)", "", "alerting"),
                Query("max(headworks_recording_rules_failing)", "", "recording", "dotted"),
            ),
            (),
            _ABSENT,
        ),
        Chart(
            "rules_late",
            "Rules that wait",
            "How long the alerting rule waits that has been due for longest.",
            units.SECONDS,
            (),
            (Query("max(headworks_rule_evaluation_late_seconds)", "", "late"),),
            (),
            _ABSENT,
        ),
        Chart(
            "deliveries",
            "Messages that wait",
            "Per receiver: not taken yet drawn through, given up dotted.",
            units.PLAIN,
            ("receiver",),
            (
                Query(_newest("max", "deliveries_waiting", "receiver"), "", "waiting"),
                Query(_newest("max", "deliveries_failed", "receiver"), "", "failed", "dotted"),
            ),
            (),
            "There is no receiver, or none is on.",
        ),
        Chart(
            "delivery_age",
            "Oldest message that waits",
            "Per receiver.",
            units.SECONDS,
            ("receiver",),
            (Query(_newest("max", "delivery_age_seconds", "receiver")),),
            (),
            "There is no receiver, or none is on.",
        ),
        Chart(
            "batches",
            "Batches",
            "Per tenant: open drawn through, past their window dotted.",
            units.PLAIN,
            ("tenant",),
            (
                Query(_newest("max", "batches_open", "tenant"), "", "open"),
                Query(_newest("max", "batches_past_window", "tenant"), "", "past the window", "dotted"),
            ),
            (),
            "No tenant has an open batch.",
        ),
    ),
)
CONTROL_PLANE = Layer(
    "control-plane",
    "",
    "Control plane",
    "Whether the control plane itself is well.",
    (_CONVERGENCE, _WEB, _STORE, _ALERTING),
)
