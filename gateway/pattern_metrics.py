"""What gateways count of the patterns behind single requests: sessions, repeats, prompts that defeat a prefix cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric

from gateway.families import Families

_BY_TENANT = ("pool", "tenant")
_CALLS = (1, 2, 3, 5, 8, 10, 15, 20, 30, 50, 100, 200, 500, 1000)


class BusiestSession(NamedTuple):
    """The most model calls and the most tokens that a session of the tenant has had, of those used just now."""

    tenant: str
    calls: int
    tokens: int


class PatternMetrics:
    """Counters and a histogram among `families`."""

    def __init__(self, families: Families) -> None:
        counter = families.counter
        self._sessions = counter("sessions_total", "Sessions that began.", ("tenant",))
        self._session_requests = counter(
            "session_requests_total", "Requests that name a session, when they are given a pool.", _BY_TENANT
        )
        self._session_calls = families.histogram(
            "session_calls", "Model calls of a session, when it is forgotten.", ("tenant",), _CALLS
        )
        self._near = counter(
            "sessions_near_limit_total", "Sessions that have used four fifths of a limit.", ("tenant", "reason")
        )
        self._closed = counter("sessions_closed_total", "Sessions that passed a limit.", ("tenant", "reason"))
        self._repeated_tool_calls = counter(
            "repeated_tool_calls_total",
            "Admitted requests that end in the same call of a tool three times running, or more.",
            ("tenant",),
        )
        self._repeats = counter(
            "repeated_requests_total",
            "Retries within a minute, and other prompts that came before within a day.",
            (*_BY_TENANT, "kind"),
        )
        self._hostile = counter(
            "cache_hostile_prompts_total", "Prompts whose beginning is new while what follows repeats.", _BY_TENANT
        )
        self._cascades = counter(
            "cascades_total",
            "Requests for which a small model's pool was asked first, by why another was asked after it.",
            (*_BY_TENANT, "reason"),
        )

    def session_began(self, tenant: str) -> None:
        self._sessions.labels(tenant).inc()

    def session_request(self, pool: str, tenant: str) -> None:
        self._session_requests.labels(pool, tenant).inc()

    def session_forgotten(self, tenant: str, calls: int) -> None:
        self._session_calls.labels(tenant).observe(calls)

    def session_near(self, tenant: str, reason: str) -> None:
        self._near.labels(tenant, reason).inc()

    def session_closed(self, tenant: str, reason: str) -> None:
        self._closed.labels(tenant, reason).inc()

    def tool_call_repeated(self, tenant: str) -> None:
        self._repeated_tool_calls.labels(tenant).inc()

    def repeated(self, pool: str, tenant: str, kind: str) -> None:
        self._repeats.labels(pool, tenant, kind).inc()

    def cache_hostile(self, pool: str, tenant: str) -> None:
        self._hostile.labels(pool, tenant).inc()

    def cascaded(self, pool: str, tenant: str, reason: str) -> None:
        """`pool`: the small model's. `reason`: `none` where its answer was given."""
        self._cascades.labels(pool, tenant, reason).inc()


def session_families(busiest: Iterable[BusiestSession]) -> Iterator[Metric]:
    calls = GaugeMetricFamily(
        "headworks_gateway_session_calls_highest",
        "Most model calls of one session of the tenant, of those used within a minute.",
        labels=["tenant"],
    )
    tokens = GaugeMetricFamily(
        "headworks_gateway_session_tokens_highest",
        "Most tokens of one session of the tenant, of those used within a minute.",
        labels=["tenant"],
    )
    for session in busiest:
        calls.add_metric([session.tenant], session.calls)
        tokens.add_metric([session.tenant], session.tokens)
    yield from (calls, tokens)
