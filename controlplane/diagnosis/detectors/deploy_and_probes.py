"""Row 19: answers that are cut because something ends or restarts what makes them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from controlplane.diagnosis.detector import Detector, Edit, Evidence, Finding, Fleet, Lever, Readings
from controlplane.diagnosis.detectors.confidence import combined, lowered
from controlplane.diagnosis.detectors.engine_acts import has_another
from controlplane.diagnosis.detectors.numbers import named, of
from controlplane.diagnosis.detectors.promql import counted, quantile

# What ends an engine of itself: then its restart is the cure.
_FAULTS = frozenset({"xid", "sxid", "gpu_lost", "gpu_unresponsive", "gpu_error", "nvml_failed", "engine_hung"})
_CUT = 'headworks_gateway_streams_cut_total{reason!="deadline_exceeded"}'


class DeployAndProbes(Detector):
    """An engine restarted while requests ran, or a gateway ended before its streams did.

    Where the GPU failed before (row 20), the engine hung, or a run of it ended for want of GPU memory (row 3), the
    restart is what mends it and this is silent. A process that the kernel killed for lack of memory restarts as well:
    that lowers the finding. A restart that an act asked for, and one of a cordoned engine, counts where streams were
    cut: what ran was drained otherwise. Streams that break off without a restart are the engine's errors, which its
    breaker and row 9 tell.
    """

    number = 19
    name = "deploy_and_probes"
    title = _("Deploys and probes")
    explanation = _(
        "A rolling update sends SIGTERM and ends the process soon after: long answers are cut. A liveness probe that a "
        "busy event loop cannot answer has a healthy pod killed; its load goes to the others, which then miss theirs. "
        "What takes the system down is not the traffic but the health check. Take an engine out of routing, wait until "
        "nothing runs, then end it."
    )
    weighs_window = False
    queries: ClassVar = {
        "restarts": counted("headworks_engine_restarts_total", "engine"),
        "busy": "max by (engine) (max_over_time(headworks_engine_requests_running[$window]))",
        "cut": counted(_CUT, "engine"),
        "cut_by_gateway": counted(
            'headworks_gateway_requests_total{outcome="failed",reason="draining"}', "gateway", "pool"
        ),
        "longest": quantile(0.99, "headworks_gateway_e2e_seconds", "pool"),
        "first_token": quantile(0.99, "headworks_gateway_ttft_seconds", "pool"),
        "oom": counted("headworks_host_oom_kills_total", "node"),
        "out_of_memory": "max by (engine) (max_over_time(headworks_engine_out_of_memory_exit[$window])) > 0",
    }
    # A counter's growth is extrapolated: less than one is one.
    ONCE = 0.5
    # One may be its agent's own probe, which asks a cordoned engine as well.
    BUSY = 2.0
    FAULT_SPAN = timedelta(minutes=15)
    # Clocks of nodes and looks of agents differ by so much.
    EVENT_LATE = timedelta(seconds=30)
    FLAPS = 3
    # kubelet's own defaults, which long answers outlast. Source: seed 1, section 19.
    GRACE_SECONDS = 30
    # For what a request takes that is longer than all but one of a hundred.
    ROOM = 1.5
    ENDS_WITHIN_SECONDS = 60
    PROBE_SECONDS_LEAST = 30

    def judge(self, readings: Readings, fleet: Fleet) -> Iterator[Finding]:
        cut = named(readings.by("cut", "engine"))
        out_of_memory = named(readings.by("out_of_memory", "engine"))
        busy, oom = named(readings.by("busy", "engine")), named(readings.by("oom", "node"))
        for engine, restarts in sorted(named(readings.by("restarts", "engine")).items()):
            row = fleet.engines.get(engine)
            if row is None or restarts < self.ONCE or engine in out_of_memory or self._failed(fleet, row):
                continue
            told = self._restart_events(fleet, engine)
            unasked = [each for each in told if each["severity"] != "info"]
            ran = busy.get(engine, 0.0) >= self.BUSY and not row["cordoned"] and not self._asked_lately(fleet, told)
            signals = [700] * (cut.get(engine, 0.0) >= self.ONCE) + [500] * ran
            if not signals:
                continue
            pool = str(row["pool"])
            confidence = combined(*signals, *[400] * (len(unasked) >= self.FLAPS))
            if oom.get(row["node"] or "", 0.0) >= self.ONCE:
                confidence = lowered(confidence, 500)
            longest, first = (readings.by_pool(query).get(pool, 0.0) for query in ("longest", "first_token"))
            evidence = (
                Evidence("restarts", restarts, "count", 1.0, _grown(fleet, "headworks_engine_restarts_total", engine)),
                Evidence("streams_cut", cut.get(engine, 0.0), "count", 1.0,
                         _grown(fleet, "headworks_gateway_streams_cut_total", engine)),
                Evidence("running_before", busy.get(engine, 0.0), "requests", self.BUSY,
                         of("headworks_engine_requests_running", engine=engine)),
                Evidence("restarts_nobody_asked_for_in_an_hour", float(len(unasked)), "count"),
                Evidence("longest_answers", longest, "seconds", float(self.GRACE_SECONDS)),
            )  # fmt: skip
            said = format_lazy(
                _("{engine} was restarted while {busy} requests ran; {cut} streams were cut"),
                engine=engine, busy=f"{busy.get(engine, 0.0):.0f}", cut=f"{cut.get(engine, 0.0):.0f}",
            )  # fmt: skip
            levers = (*self._out(fleet, engine, unasked), *self._liveness(unasked, first), self._grace(longest))
            yield Finding(f"engine/{engine}", said, confidence, evidence, (pool,),
                          tuple(fleet.tenants_of.get(pool, {})), levers)  # fmt: skip
        yield from self._gateways(readings, fleet)

    def _failed(self, fleet: Fleet, engine: Mapping[str, Any]) -> bool:
        """Whether something of its node, or of itself, failed shortly before."""
        since = fleet.at - self.FAULT_SPAN
        return any(
            each["kind"] in _FAULTS
            and each["node"] == engine["node"]
            and (each["kind"] != "engine_hung" or each["subject"] == engine["name"])
            and each["severity"] != "info"
            and datetime.fromisoformat(each["at"]) >= since
            for each in fleet.events
        )

    def _asked_lately(self, fleet: Fleet, restarts: list[Mapping[str, Any]]) -> bool:
        """Whether an act asked for the restart that the window shows; what ran was drained then."""
        since = fleet.at - timedelta(seconds=fleet.window_seconds) - self.EVENT_LATE
        return any(each["severity"] == "info" and datetime.fromisoformat(each["at"]) >= since for each in restarts)

    def _restart_events(self, fleet: Fleet, engine: str) -> list[Mapping[str, Any]]:
        return [each for each in fleet.events if each["kind"] == "engine_restarted" and each["subject"] == engine]

    def _out(self, fleet: Fleet, engine: str, unasked: list[Mapping[str, Any]]) -> Iterator[Lever]:
        """One that restarts again and again takes no more streams until somebody has looked."""
        if len(unasked) < self.FLAPS or fleet.engines[engine]["cordoned"] or not has_another(fleet, engine):
            return
        times = len(unasked)
        why = format_lazy(_("It was restarted {times} times within an hour, and nobody asked for it"), times=times)
        edit = Edit("engines", engine, {"cordoned": True})
        advice = _("Uncordon it once its probes are mended.")
        yield Lever("take_out", _("Cordon the engine"), why, (edit,), advice=advice)

    def _liveness(self, unasked: list[Mapping[str, Any]], first_token_seconds: float) -> Iterator[Lever]:
        if not unasked:
            return
        patience = max(self.PROBE_SECONDS_LEAST, math.ceil(self.ROOM * first_token_seconds))
        period = 10
        why = format_lazy(
            _("Nobody here asked for the restart, and a first token takes up to {seconds} s"),
            seconds=f"{first_token_seconds:.1f}",
        )  # fmt: skip
        advice = format_lazy(
            _("Let the liveness probe ask vLLM's /health alone, no inference, with periodSeconds: {period}, "
              "timeoutSeconds: {period} and failureThreshold: {failures}, which bears a loop that is busy for "
              "{patience} s; a startupProbe covers the loading. Readiness asks the agent's page, which tells of "
              "cordon, hang and sleep."),
            period=period, failures=max(6, math.ceil(patience / period)), patience=patience,
        )  # fmt: skip
        yield Lever("liveness", _("Give the liveness probe more time"), why, advice=advice)

    def _grace(self, longest_seconds: float) -> Lever:
        limit = max(120, math.ceil(self.ROOM * longest_seconds))
        why = format_lazy(
            _("99 of 100 answers take up to {longest} s; half as much again is the limit"),
            longest=f"{longest_seconds:.0f}",
        )  # fmt: skip
        advice = format_lazy(
            _("End engines through the agent: preStop /engines/NAME/pre-stop?limit={limit} takes it out of routing and "
              "waits until nothing runs; terminationGracePeriodSeconds: {grace}. By hand: cordon, drain, then restart. "
              "A rollout does this by itself."), limit=limit, grace=limit + self.ENDS_WITHIN_SECONDS,
        )  # fmt: skip
        return Lever("drain_first", _("Drain before the process ends"), why, advice=advice)

    def _gateways(self, readings: Readings, fleet: Fleet) -> Iterator[Finding]:
        cut = readings.by("cut_by_gateway", "gateway", "pool")
        for gateway in sorted({gateway for gateway, _pool in cut}):
            of_pools = {pool: count for (which, pool), count in cut.items() if which == gateway and count >= self.ONCE}
            if not of_pools:
                continue
            longest = max((readings.by_pool("longest").get(pool, 0.0) for pool in of_pools), default=0.0)
            limit = max(120, math.ceil(self.ROOM * longest))
            total = sum(of_pools.values())
            said = format_lazy(
                _("Gateway {gateway} ended before {cut} answers did"), gateway=gateway, cut=f"{math.ceil(total)}"
            )
            why = format_lazy(_("99 of 100 answers take up to {longest} s"), longest=f"{longest:.0f}")
            advice = format_lazy(
                _("Set HEADWORKS_GATEWAY_DRAIN_SECONDS={limit}, and terminationGracePeriodSeconds (TimeoutStopSec with "
                  "systemd) to {grace}. Let the balancer ask /readyz, and one gateway go at a time."),
                limit=limit, grace=limit + self.ENDS_WITHIN_SECONDS,
            )  # fmt: skip
            selector = of(
                "headworks_gateway_requests_total", fleet.window_seconds, gateway=gateway, outcome="failed",
                reason="draining",
            )  # fmt: skip
            evidence = (
                Evidence("answers_cut", total, "count", 1.0, f"sum(increase({selector}))"),
                Evidence("longest_answers", longest, "seconds"),
            )
            pools = tuple(sorted(of_pools))
            tenants = tuple(sorted({tenant for pool in pools for tenant in fleet.tenants_of.get(pool, {})}))
            lever = Lever("gateway_drain", _("Let the gateway drain for longer"), why, advice=advice)
            yield Finding(f"gateway/{gateway}", said, combined(900), evidence, pools, tenants, (lever,))


def _grown(fleet: Fleet, counter: str, engine: str) -> str:
    return f"sum(increase({of(counter, fleet.window_seconds, engine=engine)}))"
