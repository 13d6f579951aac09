"""When tokens of targets and of people's scripts end, as metrics."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from prometheus_client.core import Metric

from controlplane.core.gauges import gauge
from controlplane.core.models import ApiToken, Target

# A token that ends later is nobody's concern yet, and there may be thousands.
_SOON = timedelta(days=30)
# One that ended longer ago was let go.
_LATELY = timedelta(days=1)
_TOKENS_MAX = 500


def families(now: datetime) -> Iterator[Metric]:
    targets = gauge(
        "target_token_expiry_time_seconds",
        "Unix time at which the target's token ends, unless it is rotated before.",
        "kind", "node", "gateway",
    )  # fmt: skip
    ends = Target.objects.filter(revoked_at=None).values_list("kind", "name", "token_expires_at")
    for kind, name, at in ends.iterator():
        targets.add_metric(target_labels(kind, name), at.timestamp())
    yield targets
    tokens = gauge(
        "api_token_expiry_time_seconds",
        "Unix time at which a person's API token ends, of those that end within 30 days.",
        "user", "token",
    )  # fmt: skip
    made = gauge("api_token_made_time_seconds", "Unix time at which that token was made.", "user", "token")
    soon = ApiToken.objects.filter(
        revoked_at=None, user__is_active=True, expires_at__gt=now - _LATELY, expires_at__lt=now + _SOON
    )
    told = soon.order_by("expires_at").values_list("user__username", "name", "expires_at", "created_at")
    for user, name, at, made_at in told[:_TOKENS_MAX]:
        tokens.add_metric((user, name), at.timestamp())
        made.add_metric((user, name), made_at.timestamp())
    yield from (tokens, made)


def target_labels(kind: str, name: str) -> tuple[str, str, str]:
    """Values of the labels kind, node and gateway: one of the latter two is empty, which is as if it were not there."""
    return kind, name * (kind == "node"), name * (kind == "gateway")
