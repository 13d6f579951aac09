"""Session limits as their page shows them: who has which, and how near sessions come to them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from controlplane.diagnosis.detectors.runaway_agent import RunawayAgent
from controlplane.diagnosis.models import Finding
from controlplane.diagnosis.standing import open_findings
from controlplane.diagnosis.texts import in_language
from controlplane.tenants.models import SessionLimits, Tenant
from controlplane.web.listed import Listed, Some, Wanted, listed, named_by, some
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
    tenants: Some[str]


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
    """`limits` are a page of them, `listed`. `missing`: why nothing measured is shown."""

    limits: list[LimitsLine]
    listed: Listed[SessionLimits]
    tenants: Some[TenantLine]
    found: list[Found]
    missing: str


def sessions(wanted: Wanted) -> Sessions:
    numbers = board.get()
    page = listed(SessionLimits.objects.filter(name__icontains=wanted.text).order_by("name"), wanted)
    named = named_by(Tenant.objects.filter(session_limits__in=page.rows).values_list("session_limits__name", "name"))
    found = [Found(row, in_language(row.summary)) for row in open_findings() if row.detector == RunawayAgent.name]
    limits_lines = [LimitsLine(row, some(named.get(row.name, []), NAMES_SHOWN)) for row in page.rows]
    tenants = _with_limits(some(tenant_lines(numbers), ROWS_SHOWN))
    return Sessions(limits_lines, page, tenants, found, numbers.missing)


def _with_limits(lines: Some[TenantLine]) -> Some[TenantLine]:
    names = [line.tenant for line in lines.first]
    rows = Tenant.objects.filter(name__in=names).select_related("session_limits")
    limits = {row.name: row.session_limits for row in rows}
    return Some([replace(line, limits=limits.get(line.tenant)) for line in lines.first], lines.more)


def tenant_lines(numbers: Numbers) -> list[TenantLine]:
    """Tenants with a session of late: those whose sessions were closed or refused first, then those near a limit.

    What holds for them is not looked up.
    """
    tenants = {owner[0] for name in QUESTIONS for owner, value in numbers.all(name).items() if round(value) > 0}
    lines = [_tenant_line(numbers, tenant) for tenant in tenants - {""}]

    def order(line: TenantLine) -> tuple[int, int, int, str]:
        stopped = sum(line.closed.values()) + sum(line.refused.values())
        return (-stopped, -sum(line.near.values()), -(line.calls or 0), line.tenant)

    return sorted(lines, key=order)


def _tenant_line(numbers: Numbers, tenant: str) -> TenantLine:
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
    return TenantLine(tenant, None, begun, near, closed, refused, loops, whole("calls"), whole("tokens"))


def _near(used: int | None, ceiling: int | None) -> bool:
    """As gateways count it."""
    return used is not None and ceiling is not None and used * 1000 >= ceiling * NEAR_PERMILLE
