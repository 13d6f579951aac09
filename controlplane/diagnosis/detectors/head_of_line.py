"""Row 5: short requests wait behind long ones for many times as long as they take themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from controlplane.diagnosis.detector import Detector, Evidence, Finding, Fleet, Lever, PoolFacts, Readings
from controlplane.diagnosis.detectors import promql
from controlplane.diagnosis.detectors.confidence import combined
from controlplane.diagnosis.detectors.kv_pressure import pressed
from controlplane.diagnosis.detectors.noisy_neighbour import crowded
from controlplane.diagnosis.detectors.open_ended_output import open_ended
from controlplane.diagnosis.detectors.prefill_stall import STALL_QUERIES, stalls
from controlplane.diagnosis.detectors.promises import ttft_seconds
from controlplane.diagnosis.detectors.queue_debt import DEBT_QUERIES, debts
from controlplane.diagnosis.detectors.retry_storm import storms
from controlplane.diagnosis.detectors.size_route import size_route
from controlplane.diagnosis.detectors.waiting_behind import FACTOR, WORK_SHARE, Behind, behind

# Waits are spread about exponentially, so that P95 is three means (ln 20): a mean of a third breaks the promise.
_PROMISE_PART = 1 / 3


def blocked(readings: Readings, fleet: Fleet) -> dict[str, Behind]:
    """Pools in which short requests wait behind long ones, and for nothing else that is known."""
    others = {
        *pressed(readings, fleet), *crowded(readings, fleet), *stalls(readings, fleet), *debts(readings, fleet),
        *storms(readings), *open_ended(readings, fleet),
    }  # fmt: skip
    return {
        pool: seen
        for pool, seen in behind(readings).items()
        if pool in fleet.pools
        and pool not in others
        and seen.short_seconds > _PROMISE_PART * ttft_seconds(fleet.pools[pool].row)
    }


class HeadOfLine(Detector):
    """Short requests take five times as long until their first token as reading them takes, in a pool of both kinds.

    What reading takes is what longer prompts take more, and apart all would wait two fifths less. With all about
    equally long there is nobody to tell apart, and an overload is queue debt (row 8). Where the KV cache is full (row
    1), streams stand still (row 4) or one tenant sends all that is long (row 6), short ones wait as well; that is
    theirs to say.
    """

    number = 5
    name = "head_of_line"
    title = _("Head-of-line blocking")
    explanation = _(
        "In one queue a request of 40,000 tokens holds up all that come after it, and those of a few hundred together "
        "are a small part of its cost. Measure lengths at the gateway, with the model's own tokenizer, and serve long "
        "and short work by engines of their own; let what waits long go before what has just come."
    )
    queries: ClassVar = {
        **DEBT_QUERIES,
        **STALL_QUERIES,
        "gateway_wait": promql.mean("headworks_gateway_queue_seconds", "pool"),
        "engine_wait": promql.mean("headworks_engine_queue_seconds", "pool"),
    }

    def judge(self, readings: Readings, fleet: Fleet) -> Iterable[Finding]:
        for pool, seen in blocked(readings, fleet).items():
            yield self._finding(fleet.pools[pool], seen, readings, fleet)

    def _finding(self, facts: PoolFacts, seen: Behind, readings: Readings, fleet: Fleet) -> Finding:
        pool, factor = facts.row["name"], seen.short_seconds / seen.alone_seconds
        waits = [readings.by_pool(name).get(pool) for name in ("gateway_wait", "engine_wait")]
        limit = _PROMISE_PART * ttft_seconds(facts.row)
        signals = [600 if factor >= 2 * FACTOR else 450, 400 if seen.short_seconds >= 2 * limit else 250]
        if sum(wait for wait in waits if wait is not None) >= seen.short_seconds / 2:
            signals.append(300)
        levers = list(_levers(facts, fleet))
        if levers and levers[0].edits:
            # The measured distribution says that a cut would help.
            signals.append(300)
        return Finding(
            subject=f"pool/{pool}",
            summary=format_lazy(
                _(
                    "{pool}: prompts of fewer than {edge} tokens wait {wait:.1f} s for a first token that would take "
                    "{alone:.2f} s alone"
                ),
                pool=pool, edge=seen.edge, wait=seen.short_seconds, alone=seen.alone_seconds,
            ),
            confidence_permille=combined(*signals),
            evidence=(
                Evidence("short_ttft", seen.short_seconds, "seconds", limit, self.queries["sized_ttft"]),
                Evidence("times_alone", factor, "count", FACTOR),
                Evidence("long_requests", seen.long_share, "ratio", None, self.queries["sized_requests"]),
                Evidence("long_work", seen.long_work, "ratio", WORK_SHARE, self.queries["sized_tokens"]),
            ),
            pools=(pool,),
            tenants=tuple(sorted(fleet.tenants_of.get(pool, ()))),
            levers=tuple(levers),
        )  # fmt: skip


def _levers(facts: PoolFacts, fleet: Fleet) -> Iterator[Lever]:
    route = size_route(facts, fleet)
    if route is not None:
        yield route
