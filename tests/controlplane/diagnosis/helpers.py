"""What tests of detectors need: a fleet with sane defaults, series, and the answers that queries have over them.

    series = [counter("headworks_engine_preemptions_total", 2.0, AT_MS, engine="e1", pool="chat")]
    found = judged(PreemptionThrash(), series, fleet())

Public forms are those of the nouns themselves, of rows that are not stored: no test here needs a database.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from controlplane.diagnosis.asking import expressions, readings_of
from controlplane.diagnosis.detector import Detector, Finding, Fleet, Lengths, PoolFacts, Reading, Readings
from controlplane.fleet import models as fleet_rows
from controlplane.fleet.services import MODELS, NODES, POOLS, describe_gpu, described_with_facts
from controlplane.routing.models import Route
from controlplane.routing.services import ROUTES
from controlplane.telemetry.promql.values import Scalar, Vector
from controlplane.telemetry.results import samples_of
from controlplane.tenants import models as tenant_rows
from controlplane.tenants.services import CACHE_POLICIES, PRIORITY_CLASSES, SESSION_LIMITS, TENANTS
from tests.controlplane.telemetry.promql.memory import evaluated
from wire.canonical import Document
from wire.write_body import Series

AT = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)
AT_MS = int(AT.timestamp()) * 1000
WINDOW_SECONDS = 120
# As agents and gateways push.
STEP_SECONDS = 5
_SPAN_SECONDS = 600
_GIB = 1 << 30


def lengths(
    prompt_tokens: int = 500, max_tokens: int = 512, output_tokens: int = 200, *, counted: int = 1000, tail: int = 4
) -> Lengths:
    """Around these medians: a tenth of them at the 100th per mille, `tail` times them at the 990th."""
    return Lengths(counted, *(_around(middle, tail) for middle in (prompt_tokens, max_tokens, output_tokens)))


def _around(middle: int, tail: int) -> dict[int, int]:
    below = {permille: max(1, middle * permille // 1000) for permille in range(100, 500, 100)}
    above = {
        permille: middle + middle * (tail - 1) * (permille - 500) // 490 for permille in (500, 600, 700, 800, 900, 950)
    }
    return {**below, **above, 990: middle * tail}


def pool(
    name: str = "chat",
    *,
    engines: Sequence[str] = ("e1",),
    kv_capacity_tokens: int | None = 100_000,
    lengths: Lengths | None = None,
    **changes: Any,
) -> PoolFacts:
    """`changes`: fields of its public form."""
    row = fleet_rows.Pool(name=name, model=_model_row("llama"))
    return PoolFacts({**POOLS.describe(row), **changes}, tuple(engines), kv_capacity_tokens, lengths)


def engine(name: str = "e1", pool: str = "chat", node: str | None = "n1", **changes: Any) -> Document:
    """One that serves. `changes`: fields of its public form, what its agent told of it (`arguments` …) included."""
    row = fleet_rows.Engine(
        name=name,
        pool=fleet_rows.Pool(name=pool, model=_model_row("llama")),
        node=fleet_rows.Node(name=node) if node else None,
        url="http://10.0.0.1:8000",
        served_model="llama",
        kv_capacity_tokens=100_000,
        state="up",
        version="0.11.2",
        reported_at=AT,
    )
    return {**described_with_facts([row])[0], **changes}


def node(name: str = "n1", **changes: Any) -> Document:
    row = fleet_rows.Node(name=name, agent_version="1.0.0", gpu_source="nvml", reported_at=AT)
    told = {"allowed_acts": {}, "found_engines": [], "health": "ok", "health_reasons": []}
    return {**NODES.describe(row), **told, **changes}


def gpu(node: str = "n1", index: int = 0, **changes: Any) -> Document:
    row = fleet_rows.Gpu(
        pk=index + 1,
        node=fleet_rows.Node(name=node),
        uuid=f"GPU-{node}-{index}",
        index=index,
        model="NVIDIA H100 80GB HBM3",
        memory_bytes=80 * _GIB,
        reported_at=AT,
    )
    return {**describe_gpu(row), **changes}


def model(name: str = "llama", **changes: Any) -> Document:
    return {**MODELS.describe(_model_row(name)), **changes}


def _model_row(name: str) -> fleet_rows.Model:
    return fleet_rows.Model(name=name, max_context_tokens=32_768, kv_bytes_per_token=131_072)


def tenant(name: str = "acme", **changes: Any) -> Document:
    return {**TENANTS.describe(tenant_rows.Tenant(name=name, created_at=AT)), **changes}


def priority_class(name: str = "interactive", rank: int = 10, **changes: Any) -> Document:
    return {**PRIORITY_CLASSES.describe(tenant_rows.PriorityClass(name=name, rank=rank)), **changes}


def session_limits(name: str = "agents", **changes: Any) -> Document:
    return {**SESSION_LIMITS.describe(tenant_rows.SessionLimits(name=name)), **changes}


def cache_policy(name: str = "faq", **changes: Any) -> Document:
    return {**CACHE_POLICIES.describe(tenant_rows.CachePolicy(name=name)), **changes}


def route(name: str = "all", pools: Mapping[str, int] | None = None, **changes: Any) -> Document:
    row = Route(name=name, order=10, match={}, pools=dict(pools or {"chat": 1000}))
    return {**ROUTES.describe(row), **changes}


def event(kind: str, subject: str, *, node: str = "n1", detail: str = "", **changes: Any) -> Document:
    told = {
        "id": f"{node}-{kind}-{subject}",
        "node": node,
        "gateway": None,
        "at": "2026-03-02T09:59:00.000Z",
        "received_at": "2026-03-02T09:59:01.000Z",
        "kind": kind,
        "subject": subject,
        "severity": "critical",
        "detail": detail,
        "incident": None,
    }
    return {**told, **changes}


def fleet(
    pools: Iterable[PoolFacts] | None = None,
    *,
    engines: Iterable[Document] | None = None,
    nodes: Iterable[Document] | None = None,
    gpus: Iterable[Document] | None = None,
    models: Iterable[Document] | None = None,
    tenants: Iterable[Document] | None = None,
    priority_classes: Iterable[Document] = (),
    session_limits: Iterable[Document] = (),
    routes: Iterable[Document] = (),
    events: Iterable[Document] = (),
    tenants_of: Mapping[str, Mapping[str, float]] | None = None,
    cache_policies: Iterable[Document] = (),
    at: datetime = AT,
    window_seconds: int = WINDOW_SECONDS,
) -> Fleet:
    """Where nothing is given: pool chat of engine e1 on node n1 with one GPU, which tenant acme alone uses."""
    facts = {facts.row["name"]: facts for facts in ([pool()] if pools is None else pools)}
    if engines is None:
        engines = [engine(name, pool=facts[here].row["name"]) for here in facts for name in facts[here].engines]
    return Fleet(
        at=at,
        window_seconds=window_seconds,
        pools=facts,
        engines=_named(engines),
        nodes=_named([node()] if nodes is None else nodes),
        gpus=tuple([gpu()] if gpus is None else gpus),
        models=_named([model()] if models is None else models),
        tenants=_named([tenant()] if tenants is None else tenants),
        priority_classes=_named(priority_classes),
        session_limits=_named(session_limits),
        routes=tuple(routes),
        events=tuple(events),
        tenants_of={name: {"acme": 1.0} for name in facts} if tenants_of is None else tenants_of,
        cache_policies=_named(cache_policies),
    )


def _named(rows: Iterable[Document]) -> dict[str, Document]:
    return {row["name"]: row for row in rows}


def readings(detector: Detector, **answers: Iterable[tuple[Mapping[str, str], float]]) -> Readings:
    """Answers to a detector's queries, each series as (labels, value); those not given found nothing."""
    unknown = answers.keys() - detector.queries.keys()
    assert not unknown, f"{detector.name} does not ask {sorted(unknown)}"
    given = {name: tuple(Reading(labels, value) for labels, value in each) for name, each in answers.items()}
    return Readings({name: given.get(name, ()) for name in detector.queries})


def gauge(name: str, value: float, at_ms: int = AT_MS, **labels: str) -> Series:
    """A series that had this value for the last ten minutes."""
    return Series({"__name__": name, **labels}, [(time_ms, value) for time_ms in _times_ms(at_ms)])


def counter(name: str, per_second: float, at_ms: int = AT_MS, **labels: str) -> Series:
    """A counter that grew so for the last ten minutes."""
    times_ms = _times_ms(at_ms)
    grown = [(time_ms, 1000.0 + per_second * (time_ms - times_ms[0]) / 1000) for time_ms in times_ms]
    return Series({"__name__": name, **labels}, grown)


def histogram(name: str, per_second: Mapping[float, float], at_ms: int = AT_MS, **labels: str) -> list[Series]:
    """`_bucket`, `_count` and `_sum` of observations: each value → how many of it a second."""
    bounds = sorted(per_second)
    buckets = [
        counter(
            f"{name}_bucket",
            sum(per_second[each] for each in bounds if each <= bound),
            at_ms,
            le=f"{bound:g}",
            **labels,
        )
        for bound in bounds
    ]
    count, total = sum(per_second.values()), sum(value * rate for value, rate in per_second.items())
    return [
        *buckets,
        counter(f"{name}_bucket", count, at_ms, le="+Inf", **labels),
        counter(f"{name}_count", count, at_ms, **labels),
        counter(f"{name}_sum", total, at_ms, **labels),
    ]


def _times_ms(at_ms: int) -> list[int]:
    return list(range(at_ms - _SPAN_SECONDS * 1000, at_ms + 1, STEP_SECONDS * 1000))


def ask(
    detector: Detector, series: Sequence[Series], at_ms: int = AT_MS, window_seconds: int = WINDOW_SECONDS
) -> Readings:
    """The answers that the detector's own PromQL has over these series, as the embedded engine gives them."""
    answers = {}
    for name, promql in expressions(detector, window_seconds).items():
        value = evaluated(series, promql, [at_ms])
        assert isinstance(value, Scalar | Vector), f"{name} is neither a scalar nor a vector"
        answers[name] = readings_of(samples_of(value, at_ms))
    return Readings(answers)


def judged(detector: Detector, series: Sequence[Series], of: Fleet, at_ms: int = AT_MS) -> list[Finding]:
    """What the detector finds over these series."""
    return list(detector.judge(ask(detector, series, at_ms, of.window_seconds), of))
