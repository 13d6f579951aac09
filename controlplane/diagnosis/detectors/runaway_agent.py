"""Row 14: an agent that calls the model again and again, and does not end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from controlplane.diagnosis.detector import Detector, Edit, Evidence, Finding, Fleet, Lever, Readings
from controlplane.diagnosis.detectors.confidence import combined
from controlplane.diagnosis.detectors.numbers import named, of, share
from controlplane.diagnosis.detectors.promql import counted, per_second
from wire.canonical import MAX_INTEGER


class RunawayAgent(Detector):
    """A tenant's conversations end in the same tool with the same arguments, or one session makes most of its calls.

    Also where the tenant's limits say so: a session near one of them. One that was closed is no bottleneck any more,
    however often it knocks. Fan-out (row 13) is many calls in each of many sessions; duplicates (row 12) are of many
    sessions, too, and the prompts of a loop grow.
    """

    number = 14
    name = "runaway_agent"
    title = _("Runaway agent")
    explanation = _(
        "A tool answers wrongly or in an unexpected form, and the agent calls it again until it gets what it wants: "
        "one session can take hundreds of calls a minute, all night. A model does not stop by itself, so sessions have "
        "ceilings: iterations, tokens, depth, the same call three times running, and cost."
    )
    queries: ClassVar = {
        "loops": counted("headworks_gateway_repeated_tool_calls_total", "tenant"),
        "near": counted("headworks_gateway_sessions_near_limit_total", "tenant"),
        "closed": counted("headworks_gateway_sessions_closed_total", "tenant"),
        "refused": counted('headworks_gateway_requests_total{reason=~"session_.+"}', "tenant"),
        "busiest": "max by (tenant) (max_over_time(headworks_gateway_session_calls_highest[$window]))",
        "tokens": "max by (tenant) (max_over_time(headworks_gateway_session_tokens_highest[$window]))",
        "calls": counted("headworks_gateway_session_requests_total", "tenant"),
        "rate": per_second("headworks_gateway_session_requests_total", "tenant", "pool"),
        # What sessions have been like since gateways began: a day's samples would be too many to read.
        "usual_calls": "histogram_quantile(0.99, sum by (tenant, le) (headworks_gateway_session_calls_bucket))",
        "usual_count": "sum by (tenant) (headworks_gateway_session_calls_count)",
    }
    # The same call three times running is a loop; a slip of a few conversations is none. Source: seed 1, section 14.
    REPEATED_CALLS = 3
    LOOPS_LEAST = 5.0
    # An agent's loop is usually 5 to 15 calls: ten times that is none any more. Source: seed 1, sections 13 and 14.
    CALLS_LEAST = 100.0
    ONE_SESSION_SHARE = 1 / 3
    BEYOND_USUAL = 3.0
    KNOCKS_LEAST = 5.0
    # So many sessions say what is usual.
    SESSIONS_KNOWN = 50.0
    # Sessions may be twice as long as the longest usual one before they end.
    ROOM = 2
    # The seed's upper end for a loop, where nothing is known of this tenant's.
    ITERATIONS_UNKNOWN = 15

    def judge(self, readings: Readings, fleet: Fleet) -> Iterator[Finding]:
        seen = {query: named(readings.by(query, "tenant")) for query in self.queries if query != "rate"}
        tenants = {tenant for query in ("loops", "near", "closed", "refused", "busiest") for tenant in seen[query]}
        for tenant in sorted(tenants & fleet.tenants.keys()):
            told = {query: values.get(tenant, 0.0) for query, values in seen.items()}
            signals = self._signals(told)
            if not signals:
                continue
            pools = sorted(
                ((rate, pool) for (who, pool), rate in readings.by("rate", "tenant", "pool").items()
                 if who == tenant and rate > 0), reverse=True,
            )  # fmt: skip
            said = format_lazy(
                _("{tenant} has a session of {calls} calls; {loops} requests ended in the same call three times "
                  "running"),
                tenant=tenant, calls=f"{told['busiest']:.0f}", loops=f"{told['loops']:.0f}",
            )  # fmt: skip
            yield Finding(
                f"tenant/{tenant}", said, combined(*signals), _evidence(self, fleet, tenant, told),
                tuple(pool for _rate, pool in pools), (tenant,), self._levers(fleet, tenant, told),
            )  # fmt: skip

    def _signals(self, told: Mapping[str, float]) -> list[int]:
        """What says that a session of the tenant runs away, each with how surely."""
        signals = []
        if told["loops"] >= self.LOOPS_LEAST:
            signals.append(800)
        if self._one_session_runs(told):
            signals.append(600)
        if told["near"] >= 1:
            signals.append(500)
        # Alone it says that the limits hold: what is refused costs nothing.
        if signals and told["closed"] >= 1 and told["refused"] >= self.KNOCKS_LEAST:
            signals.append(400)
        return signals

    def _one_session_runs(self, told: Mapping[str, float]) -> bool:
        if told["busiest"] < self.CALLS_LEAST:
            return False
        is_known = told["usual_count"] >= self.SESSIONS_KNOWN
        if is_known and told["busiest"] < self.BEYOND_USUAL * told["usual_calls"]:
            return False
        # A long session that is used now and then makes few calls in the window.
        return is_known or told["calls"] >= self.CALLS_LEAST * self.ONE_SESSION_SHARE

    def _levers(self, fleet: Fleet, tenant: str, told: Mapping[str, float]) -> tuple[Lever, ...]:
        known = told["usual_count"] >= self.SESSIONS_KNOWN
        iterations = math.ceil(self.ROOM * told["usual_calls"]) if known else self.ITERATIONS_UNKNOWN
        iterations = min(MAX_INTEGER, max(1, iterations))
        tokens_a_call = share(told["tokens"], told["busiest"])
        limits: dict[str, Any] = {"max_iterations": iterations, "max_repeated_calls": self.REPEATED_CALLS}
        if tokens_a_call >= 1:
            limits["max_tokens"] = min(MAX_INTEGER, math.ceil(iterations * tokens_a_call))
        if known:
            why = format_lazy(
                _("99 of 100 of its {sessions} sessions so far made at most {usual} calls; twice that is the "
                  "ceiling"),
                sessions=f"{told['usual_count']:.0f}", usual=f"{told['usual_calls']:.0f}",
            )  # fmt: skip
        else:
            why = format_lazy(
                _("Too few of its sessions have ended to tell what is usual; an agent's loop makes up to {most} calls"),
                most=self.ITERATIONS_UNKNOWN,
            )  # fmt: skip
        return self._limit(fleet, tenant, limits, why), _mend(tenant)

    def _limit(self, fleet: Fleet, tenant: str, limits: dict[str, Any], why: Any) -> Lever:
        """Sessions beyond the new limits are closed at their next call."""
        title = _("Close the session, and bound the others")
        name = fleet.tenants[tenant]["session_limits"]
        row = fleet.session_limits.get(name or "")
        if row is None:
            new = _limits_name(fleet, tenant)
            edits = (
                Edit("session-limits", new, limits, create=True),
                Edit("tenants", tenant, {"session_limits": new}),
            )
            return Lever("session_limits", title, why, edits)
        # Never looser than what holds.
        tighter = {field: value if row[field] is None else min(value, row[field]) for field, value in limits.items()}
        changes = {field: value for field, value in tighter.items() if value != row[field]}
        if not changes:
            advice = _("Its limits end such sessions already: the client has to begin a new one, or to be mended.")
            return Lever("session_limits", title, why, advice=advice)
        others = sorted(other for other, each in fleet.tenants.items()
                        if each["session_limits"] == row["name"] and other != tenant)  # fmt: skip
        if not others:
            return Lever("session_limits", title, why, (Edit("session-limits", row["name"], changes),))
        # Others name the same limits: give this tenant its own.
        new = _limits_name(fleet, tenant)
        kept = {field: value for field, value in row.items() if field != "name" and value is not None}
        edits = (
            Edit("session-limits", new, {**kept, **tighter}, create=True),
            Edit("tenants", tenant, {"session_limits": new}),
        )
        return Lever("session_limits", title, why, edits)


def _limits_name(fleet: Fleet, tenant: str) -> str:
    name, number = f"sessions-{tenant}"[:60], 1
    while name in fleet.session_limits:
        number += 1
        name = f"sessions-{tenant}"[:56] + f"-{number}"
    return name


def _mend(tenant: str) -> Lever:
    advice = format_lazy(
        _("{tenant}'s decisions at check_session tell which tool is called again. Have the tool tell its error in "
          "words that a model can act on, and the agent stop after it."), tenant=tenant,
    )  # fmt: skip
    return Lever("mend_agent", _("Mend the tool, or the agent"), _("A model does not stop by itself"), advice=advice)


def _evidence(of_detector: RunawayAgent, fleet: Fleet, tenant: str, told: Mapping[str, float]) -> tuple[Evidence, ...]:
    loops = of("headworks_gateway_repeated_tool_calls_total", fleet.window_seconds, tenant=tenant)
    found = [
        Evidence("repeated_tool_calls", told["loops"], "requests", of_detector.LOOPS_LEAST, f"sum(increase({loops}))"),
        Evidence("busiest_session", told["busiest"], "count", of_detector.CALLS_LEAST,
                 f"max({of('headworks_gateway_session_calls_highest', tenant=tenant)})"),
        Evidence("its_tokens", told["tokens"], "tokens", None,
                 f"max({of('headworks_gateway_session_tokens_highest', tenant=tenant)})"),
        Evidence("near_a_limit", told["near"], "count", 1.0),
        Evidence("closed", told["closed"], "count"),
        Evidence("refused_for_its_session", told["refused"], "requests", of_detector.KNOCKS_LEAST),
    ]  # fmt: skip
    if told["usual_count"] > 0:
        found.append(Evidence("usual_calls_p99", told["usual_calls"], "count"))
    return tuple(found)
