"""What taking engines out of service leaves of their pools, and whom it is about, as a sentence for a review."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from django.utils.translation import gettext as _

from controlplane.fleet.models import Engine
from controlplane.web.effects import tenants_of


def loss_of(engines: Iterable[Engine]) -> str:
    """Says of each pool how many of its engines still take work then, and who sent requests there lately.

    Empty where none of `engines` takes work now.
    """
    gone = {engine.pk: engine.pool_id for engine in engines if _serves(engine)}
    others = Engine.objects.filter(pool__in=gone.values()).select_related("node", "pool")
    serving = [engine for engine in others if _serves(engine)]
    before = Counter(engine.pool.name for engine in serving)
    after = Counter(engine.pool.name for engine in serving if engine.pk not in gone)
    sentences = [_left(pool, before[pool], after[pool]) for pool in sorted(before)]
    return " ".join(filter(None, [*sentences, tenants_of(before)]))


def _serves(engine: Engine) -> bool:
    """One that no agent has seen yet may well."""
    return not engine.takes_no_work and engine.state != "down"


def _left(pool: str, before: int, after: int) -> str:
    if not after:
        return _("Pool %(pool)s has no other engine that takes requests: they are refused.") % {"pool": pool}
    return _("Pool %(pool)s keeps %(after)s of %(before)s engines that take requests.") % {
        "pool": pool,
        "after": after,
        "before": before,
    }
