"""Requests that gateways turned away, by whose doing it was: the tenant's own limits, or a lack of capacity.

Source: gateway/refusals.py, which says of each reason what it means.
"""

from __future__ import annotations

from controlplane.diagnosis.detectors import promql

REQUESTS = "headworks_gateway_requests_total"
_OWN_LIMITS = "rpm_limit|tpm_limit|max_parallel_requests|daily_token_budget|feedback_limit|session_.*|too_many_schemas"
_NO_CAPACITY = (
    "queue_full|queue_timeout|cannot_finish_in_time|shed|no_kv_capacity|breaker_open|no_engine|engine_overloaded|"
    "engine_unreachable|deadline_exceeded"
)
# What a tenant's own limit stops costs nobody else anything.
OWN_LIMITS = f'{REQUESTS}{{outcome="refused",reason=~"{_OWN_LIMITS}"}}'
PAST_LIMITS = f'{REQUESTS}{{reason!~"{_OWN_LIMITS}"}}'
FOR_CAPACITY = f'{REQUESTS}{{outcome="refused",reason=~"{_NO_CAPACITY}"}}'
FAILED = f'{REQUESTS}{{outcome="failed"}}'
# Their clients had enough of waiting.
LEFT = f'{REQUESTS}{{outcome="cancelled"}}'
# Fewer of a window say nothing of a share: the breaker's own minimum.
REQUESTS_MIN = 20.0


def by_tenant(series: str) -> str:
    return promql.counted(series, "pool", "tenant")
