"""Priority classes as their page shows them: in the order in which they are served, and how each fares."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Count

from controlplane.tenants.models import PriorityClass, Tenant
from controlplane.tenants.services import PRIORITY_CLASSES
from controlplane.web.listed import Listed, Some, Wanted, listed, some
from controlplane.web.measured import Board, Question
from wire.canonical import Document

_REQUESTS, _QUEUE = "headworks_gateway_requests_total", "headworks_gateway_queue_seconds"
_SLO = "headworks_gateway_slo_requests_total"
_MET = f'{_SLO}{{outcome="met"}}'
# A person reads no more of them in one line.
NAMES_SHOWN = 10


def _rate(series: str) -> str:
    return f"sum by (priority_class) (rate({series}[5m]))"


_ASKED = {
    "requests": _rate(_REQUESTS),
    "shed": _rate(f'{_REQUESTS}{{reason="shed"}}'),
    # Seconds that requests waited in a second: so many waited at once, on the average.
    "waiting": _rate(f"{_QUEUE}_sum"),
    "queue_p95": f"histogram_quantile(0.95, sum by (priority_class, le) (rate({_QUEUE}_bucket[5m])))",
    # Where none was met there is no series of those that were.
    "goodput": f"({_rate(_MET)} or 0 * {_rate(_SLO)}) / {_rate(_SLO)}",
}
QUESTIONS = {name: Question(promql, ("priority_class",)) for name, promql in _ASKED.items()}
board = Board("classes", QUESTIONS)


@dataclass(frozen=True)
class ClassLine:
    """One class. `shown` is its public form; `gives_way_to` are those that it is shed for where a queue is full.

    Of the last 5 minutes, None where not measured: `waiting` is the mean number of its requests that waited.
    """

    shown: Document
    gives_way_to: Some[str]
    default_of: int
    requests_per_second: float | None
    shed_per_minute: float | None
    waiting: float | None
    queue_p95_seconds: float | None
    goodput_ratio: float | None

    @property
    def kv_ceiling_percent(self) -> float:
        return float(self.shown["kv_ceiling_permille"]) / 10

    @property
    def goodput_percent(self) -> float | None:
        return None if self.goodput_ratio is None else 100 * self.goodput_ratio

    @property
    def promises(self) -> list[tuple[str, int]]:
        """What it is promised of its own, by the name of the time, in ms."""
        named = (("TTFT", "ttft_slo_ms"), ("TPOT", "tpot_slo_ms"), ("E2E", "e2e_slo_ms"))
        return [(name, self.shown[field]) for name, field in named if self.shown[field] is not None]


@dataclass(frozen=True)
class Classes:
    """A page of them, `listed`. `missing`: why nothing measured is shown."""

    lines: list[ClassLine]
    listed: Listed[PriorityClass]
    missing: str


def classes(wanted: Wanted) -> Classes:
    """The class that is served first stands first."""
    numbers = board.get()
    page = listed(PriorityClass.objects.filter(name__icontains=wanted.text).order_by("rank", "name"), wanted)
    orders = PriorityClass.objects.order_by("rank", "name").values_list("shed_order", "name")
    named = Tenant.objects.exclude(default_priority_class="").values_list("default_priority_class")
    default_of = dict(named.annotate(count=Count("pk")).order_by())
    lines = []
    by_order = list(orders) if page.is_searched else [(row.shed_order, row.name) for row in page.rows]
    for row, shown in zip(page.rows, PRIORITY_CLASSES.show(page.rows), strict=True):
        shed = numbers.of("shed", row.name)
        line = ClassLine(
            shown,
            some([name for order, name in by_order if order < row.shed_order], NAMES_SHOWN),
            default_of.get(row.name, 0),
            numbers.of("requests", row.name),
            None if shed is None else 60 * shed,
            numbers.of("waiting", row.name),
            numbers.of("queue_p95", row.name),
            numbers.of("goodput", row.name),
        )
        lines.append(line)
    return Classes(lines, page, numbers.missing)
