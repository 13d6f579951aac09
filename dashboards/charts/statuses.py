"""The reasons for which gateways refuse, by the status of the answer (docs/refusals.md); a test holds them equal."""

from __future__ import annotations

# 429: the tenant is over its share.
LIMITS = (
    "batch_files_full",
    "too_many_batches",
    "tpm_limit",
    "rpm_limit",
    "daily_token_budget",
    "feedback_limit",
    "too_many_schemas",
    "max_parallel_requests",
    "session_iterations",
    "session_tokens",
    "session_cost",
    "session_repeated_call",
)
# 503: no capacity now.
CAPACITY = (
    "batches_unavailable",
    "not_ready",
    "saturated",
    "draining",
    "no_engine",
    "breaker_open",
    "queue_full",
    "queue_timeout",
    "cannot_finish_in_time",
    "shed",
    "no_kv_capacity",
    "engine_overloaded",
    "engine_unreachable",
)
