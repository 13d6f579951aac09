"""Session limits as their page shows them: who has which, and how near sessions come to them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from controlplane.diagnosis.detectors.runaway_agent import RunawayAgent
from controlplane.diagnosis.models import Finding
from controlplane.diagnosis.standing import open_findings
from controlplane.diagnosis.texts import in_language
from controlplane.tenants.models import SessionLimits, Tenant
from controlplane.web.measured import Board, Numbers, Question, in_last_hour
from policy.sessions import NEAR_PERMILLE

# A person reads no more; the metrics have all.
ROWS_SHOWN, NAMES_SHOWN = 100, 10
_REFUSED = 'headworks_gateway_requests_total{reason=~"session_.+"}'


def _highest(what: str) -> Question:
    return Question(f"max by (tenant) (max_over_time(headworks_gateway_session_{what}_highest[5m]))", ("tenant",))


_TENANT, _REASON = ("tenant",), ("tenant", "reason")
QUESTIONS = {
    "begun": Question(in_last_hour("headworks_gateway_sessions_total", "tenant"), _TENANT),
    "near": Question(in_last_hour("headworks_gateway_sessions_near_limit_total", *_REASON), _REASON),
    "closed": Question(in_last_hour("headworks_gateway_sessions_closed_total", *_REASON), _REASON),
    "refused": Question(in_last_hour(_REFUSED, *_REASON), _REASON),
    "loops": Question(in_last_hour("headworks_gateway_repeated_tool_calls_total", "tenant"), _TENANT),
    "calls": _highest("calls"),
    "tokens": _highest("tokens"),
}
board = Board("sessions", QUESTIONS)


@dataclass(frozen=True)
class LimitsLine:
    row: SessionLimits
    tenants: list[str]

    @property
    def tenants_shown(self) -> list[str]:
        return self.tenants[:NAMES_SHOWN]

    @property
    def more_tenants(self) -> int:
        return max(0, len(self.tenants) - NAMES_SHOWN)


@dataclass(frozen=True)
class TenantLine:
    """A tenant's sessions: of the last hour, and the largest one that was used in the last 5 minutes.

    `near`, `closed` and `refused` count by reason. `limits` are what holds for it; None where nothing does.
    """

    tenant: str
    limits: SessionLimits | None
    begun: int
    near: dict[str, int]
    closed: dict[str, int]
    refused: dict[str, int]
    loops: int
    calls: int | None
    tokens: int | None

    @property
    def calls_near(self) -> bool:
        return _near(self.calls, self.limits.max_iterations if self.limits else None)

    @property
    def tokens_near(self) -> bool:
        return _near(self.tokens, self.limits.max_tokens if self.limits else None)


@dataclass(frozen=True)
class Found:
    """An open finding of an agent that runs away, in the reader's language."""

    row: Finding
    summary: str


@dataclass(frozen=True)
class Sessions:
    """`missing`: why nothing measured is shown."""

    limits: list[LimitsLine]
    tenants: list[TenantLine]
    found: list[Found]
    missing: str

    @property
    def tenants_shown(self) -> list[TenantLine]:
        return self.tenants[:ROWS_SHOWN]

    @property
    def more_tenants(self) -> int:
        return max(0, len(self.tenants) - ROWS_SHOWN)


def sessions() -> Sessions:
    numbers = board.get()
    rows = {row.pk: row for row in SessionLimits.objects.order_by("name")}
    named: dict[int, list[str]] = {}
    limits_of: dict[str, SessionLimits] = {}
    for tenant, limits in Tenant.objects.exclude(session_limits=None).values_list("name", "session_limits"):
        if limits is not None:
            named.setdefault(limits, []).append(tenant)
            limits_of[tenant] = rows[limits]
    found = [Found(row, in_language(row.summary)) for row in open_findings() if row.detector == RunawayAgent.name]
    limits_lines = [LimitsLine(row, sorted(named.get(row.pk, []))) for row in rows.values()]
    return Sessions(limits_lines, tenant_lines(numbers, limits_of), found, numbers.missing)


def tenant_lines(numbers: Numbers, limits_of: dict[str, SessionLimits]) -> list[TenantLine]:
    """Tenants with a session of late: those whose sessions were closed or refused first, then those near a limit."""
    tenants = {owner[0] for name in QUESTIONS for owner, value in numbers.all(name).items() if round(value) > 0}
    lines = [_tenant_line(numbers, tenant, limits_of.get(tenant)) for tenant in tenants - {""}]

    def order(line: TenantLine) -> tuple[int, int, int, str]:
        stopped = sum(line.closed.values()) + sum(line.refused.values())
        return (-stopped, -sum(line.near.values()), -(line.calls or 0), line.tenant)

    return sorted(lines, key=order)


def _tenant_line(numbers: Numbers, tenant: str, limits: SessionLimits | None) -> TenantLine:
    def by_reason(name: str) -> dict[str, int]:
        counted = Counter[str]()
        for (whose, reason), value in numbers.all(name).items():
            if whose == tenant and round(value) > 0:
                counted[reason] += round(value)
        return dict(counted.most_common())

    def whole(name: str) -> int | None:
        value = numbers.of(name, tenant)
        return None if value is None else round(value)

    near, closed, refused = by_reason("near"), by_reason("closed"), by_reason("refused")
    begun, loops = whole("begun") or 0, whole("loops") or 0
    return TenantLine(tenant, limits, begun, near, closed, refused, loops, whole("calls"), whole("tokens"))


def _near(used: int | None, ceiling: int | None) -> bool:
    """As gateways count it."""
    return used is not None and ceiling is not None and used * 1000 >= ceiling * NEAR_PERMILLE
