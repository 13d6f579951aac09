"""Row 17: schemas that engines have never seen, each of which is compiled while a request waits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from django.utils.functional import Promise
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from controlplane.diagnosis.detector import Detector, Edit, Evidence, Finding, Fleet, Lever, Readings
from controlplane.diagnosis.detectors.confidence import combined, lowered
from controlplane.diagnosis.detectors.numbers import named, of, share
from controlplane.diagnosis.detectors.processors import FULL_CORES, GPU_OF_ENGINE, IDLE_GPU
from controlplane.diagnosis.detectors.promql import counted, quantile, typical

_TTFT = "headworks_gateway_ttft_seconds"


class SchemaCompile(Detector):
    """New schemas come in with a good part of a pool's requests, and as many first tokens come late.

    A long prompt (row 4) and a queue (rows 5 and 8) make late first tokens without a new schema; where much is waited
    for in the gateway's queue the finding is lowered, since both may be so at once. Schemas that engines compile anew
    after a start pass by themselves: gateways warm those up.

    Or what constrains answers costs more at each step than the model does: many such requests run at once, the engine's
    core is a whole processor busy, and its GPU has time. One request alone never shows it.
    """

    number = 17
    name = "schema_compile"
    title = _("Schema compile")
    explanation = _(
        "An answer that must obey a JSON schema needs a grammar, which is compiled on the CPU the first time that an "
        "engine sees the schema: seconds for a complex one, and the batch may wait. A first token that is late now and "
        "then is usually such a one. Schemas whose field names differ with each request make the engine's cache "
        "useless; anyOf, oneOf and deep nesting make grammars grow."
    )
    queries: ClassVar = {
        "unseen": counted("headworks_gateway_unseen_schemas_total", "pool", "tenant"),
        "requests": counted("headworks_gateway_requests_total", "pool", "tenant"),
        "ttft_low": quantile(0.1, _TTFT, "pool"),
        "ttft_middle": quantile(0.5, _TTFT, "pool"),
        "ttft_high": quantile(0.95, _TTFT, "pool"),
        "ttft_highest": quantile(0.99, _TTFT, "pool"),
        "queue": quantile(0.95, "headworks_gateway_queue_seconds", "pool"),
        "restarts": counted("headworks_engine_restarts_total", "pool"),
        "constrained": counted("headworks_gateway_constrained_requests_total", "pool"),
        "core": 'sum by (engine) (rate(headworks_engine_process_cpu_seconds_total{role="core"}[$window]))',
        "gpu": GPU_OF_ENGINE,
        "running": typical("headworks_engine_requests_running", "engine"),
    }
    UNSEEN_LEAST = 5.0
    # As many as lie beyond the 95th per cent: fewer cannot be told from a tail.
    UNSEEN_SHARE = 0.05
    # A late first token of a compile is seconds beside tenths. Source: seed 1, section 17.
    LATE_TIMES = 3.0
    LATE_SECONDS = 0.3
    # An engine may compile for a hundredth of its time.
    COMPILE_SHARE = 0.01
    DISTINCT_LEAST = 4
    # A tenant with more new schemas than this of its requests writes values into them.
    EACH_REQUEST_SHARE = 0.5
    # Half of the requests, so many at a time that work for each of them adds up. Source: seed 2, logit processing.
    CONSTRAINED_SHARE, RUNNING_LEAST = 0.5, 4.0

    def judge(self, readings: Readings, fleet: Fleet) -> Iterator[Finding]:
        yield from self._compiling(readings, fleet)
        yield from self._masking(readings, fleet)

    def _compiling(self, readings: Readings, fleet: Fleet) -> Iterator[Finding]:
        unseen, requests = readings.by("unseen", "pool", "tenant"), readings.by("requests", "pool", "tenant")
        for pool in sorted({pool for pool, _tenant in unseen} & fleet.pools.keys()):
            new = {tenant: count for (where, tenant), count in unseen.items() if where == pool and count > 0}
            asked = sum(count for (where, _tenant), count in requests.items() if where == pool)
            part = share(sum(new.values()), asked)
            if sum(new.values()) < self.UNSEEN_LEAST or part < self.UNSEEN_SHARE:
                continue
            late, usual = self._late(readings, pool, part)
            if late - usual < self.LATE_SECONDS or late < self.LATE_TIMES * usual:
                continue
            confidence = combined(600, *[400] * (part >= 2 * self.UNSEEN_SHARE), *[400] * (late >= 10 * usual))
            if readings.by_pool("queue").get(pool, 0.0) >= (late - usual) / 2:
                confidence = lowered(confidence, 500)
            if readings.by_pool("restarts").get(pool, 0.0) >= 0.5:
                confidence = lowered(confidence, 700)
            tenants = tuple(sorted(new, key=lambda tenant: (-new[tenant], tenant)))
            said = format_lazy(
                _("{share} % of {pool}'s requests bring a schema that its engines have not seen; first tokens take up "
                  "to {late} s instead of {usual} s"),
                share=f"{min(1.0, part) * 100:.0f}", pool=pool, late=f"{late:.2f}", usual=f"{usual:.2f}",
            )  # fmt: skip
            levers = (*self._caps(readings, fleet, pool, tenants, late - usual), *self._advice(readings, pool))
            yield Finding(f"pool/{pool}", said, confidence, self._evidence(fleet, pool, part, late, usual),
                          (pool,), tenants, levers)  # fmt: skip

    def _masking(self, readings: Readings, fleet: Fleet) -> Iterator[Finding]:
        """Engines whose GPU waits while masks of tokens are made for one request after another."""
        requests = readings.by_pool("requests")
        running, gpu = named(readings.by("running", "engine")), named(readings.by("gpu", "engine"))
        for engine, cores in sorted(named(readings.by("core", "engine")).items()):
            row = fleet.engines.get(engine)
            if row is None or engine not in gpu or running.get(engine, 0.0) < self.RUNNING_LEAST:
                continue
            pool = str(row["pool"])
            part = share(readings.by_pool("constrained").get(pool, 0.0), requests.get(pool, 0.0))
            busy = gpu[engine] / 100
            if part < self.CONSTRAINED_SHARE or cores < FULL_CORES or busy >= IDLE_GPU:
                continue
            said = format_lazy(
                _("{engine} spends its steps on constraints: its core takes {cores} cores, its GPU is {gpu} % busy"),
                engine=engine, cores=f"{cores:.2f}", gpu=f"{busy * 100:.0f}",
            )  # fmt: skip
            evidence = (
                Evidence("constrained", part, "ratio", self.CONSTRAINED_SHARE, _constrained_expr(fleet, pool)),
                Evidence("cores_of_the_core", cores, "ratio", FULL_CORES),
                Evidence("gpu_used", busy, "ratio", IDLE_GPU),
                Evidence("running", running[engine], "requests", self.RUNNING_LEAST,
                         of("headworks_engine_requests_running", engine=engine)),
            )  # fmt: skip
            levers = (*_fewer_at_once(fleet, pool, running[engine], busy), _vectorise(said))
            yield Finding(f"engine/{engine}", said, combined(600, *[400] * (busy < IDLE_GPU / 2)), evidence, (pool,),
                          tuple(fleet.tenants_of.get(pool, {})), levers)  # fmt: skip

    def _late(self, readings: Readings, pool: str, part: float) -> tuple[float, float]:
        """The first token of a request with a new schema, and of one without, by the part that the new ones are."""
        high = "ttft_high" if part >= 2 * (1 - 0.95) else "ttft_highest"
        low = "ttft_middle" if part < 0.5 else "ttft_low"
        late, usual = readings.by_pool(high).get(pool, 0.0), readings.by_pool(low).get(pool)
        return (0.0, 0.0) if usual is None else (late, usual)

    def _evidence(self, fleet: Fleet, pool: str, part: float, late: float, usual: float) -> tuple[Evidence, ...]:
        window = fleet.window_seconds
        new = of("headworks_gateway_unseen_schemas_total", window, pool=pool)
        first = f"sum by (le) (rate({of(_TTFT + '_bucket', window, pool=pool)}))"
        return (
            Evidence("new_schemas", part, "ratio", self.UNSEEN_SHARE,
                     f"sum(increase({new})) / "
                     f"sum(increase({of('headworks_gateway_requests_total', window, pool=pool)}))"),
            Evidence("late_first_token", late, "seconds", self.LATE_TIMES * usual,
                     f"histogram_quantile(0.95, {first})"),
            Evidence("usual_first_token", usual, "seconds", None, f"histogram_quantile(0.5, {first})"),
        )  # fmt: skip

    def _caps(
        self, readings: Readings, fleet: Fleet, pool: str, tenants: tuple[str, ...], compile_seconds: float
    ) -> Iterator[Lever]:
        """Bound the different schemas of those tenants that bring most of the new ones."""
        affordable = max(self.DISTINCT_LEAST, math.floor(3600 * self.COMPILE_SHARE / compile_seconds))
        brought = named(readings.by("unseen", "tenant"))
        hourly = {tenant: count * 3600 / fleet.window_seconds for tenant, count in brought.items()}
        edits = []
        for tenant in tenants:
            row = fleet.tenants.get(tenant)
            used = 0.0 if row is None else min(row["schema_limits"]["max_distinct"], hourly.get(tenant, 0.0))
            if used > affordable:
                edits.append(Edit("tenants", tenant, {"schema_limits": {"max_distinct": affordable}}))
        if not edits:
            return
        why = format_lazy(
            _("A compile takes some {seconds} s; {share} % of an hour are {affordable} of them"),
            seconds=f"{compile_seconds:.2f}", share=self.COMPILE_SHARE * 100, affordable=affordable,
        )  # fmt: skip
        yield Lever("fewer_schemas", _("Bound the different schemas"), why, tuple(edits), advice=_(
            "Schemas that were used within the hour are let through; others are refused by name "
            "(too_many_schemas)."))  # fmt: skip

    def _advice(self, readings: Readings, pool: str) -> Iterator[Lever]:
        counts = readings.by("requests", "pool", "tenant")
        writers = sorted(
            tenant for (where, tenant), count in readings.by("unseen", "pool", "tenant").items()
            if where == pool and share(count, counts.get((pool, tenant), 0.0)) >= self.EACH_REQUEST_SHARE
        )  # fmt: skip
        if writers:
            why = format_lazy(_("Nearly each request of {tenants} has a schema of its own"), tenants=", ".join(writers))
            yield Lever("same_schema", _("Send the same schema each time"), why, advice=_(
                "Keep names and values of one request out of the schema, and check in the application what the schema "
                "leaves open. Flat schemas without anyOf and oneOf compile fastest."))  # fmt: skip
        yield Lever("warm_up", _("Warm known schemas up"), _("Engines that start have compiled nothing"), advice=_(
            "Gateways ask an engine that has started for the schemas that are used most "
            "(HEADWORKS_GATEWAY_KNOWN_SCHEMAS, within HEADWORKS_GATEWAY_SCHEMA_WARM_UP_SECONDS). For one that is new "
            "to the fleet ask for the act warm_up with its schema before clients come."))  # fmt: skip


def _fewer_at_once(fleet: Fleet, pool: str, running: float, gpu_busy: float) -> Iterator[Lever]:
    """As many at once as make the processor's part of a step no longer than the GPU's: it grows with their number."""
    facts = fleet.pools.get(pool)
    if facts is None or not facts.engines or not 0 < gpu_busy < 0.5:
        return
    most = max(1, math.floor(running * gpu_busy / (1 - gpu_busy))) * len(facts.engines)
    if (facts.row["max_concurrency"] or math.inf) <= most:
        return
    why = format_lazy(
        _("With {running} at once the GPU works {busy} % of a step; the rest grows with their number"),
        running=f"{running:.0f}", busy=f"{gpu_busy * 100:.0f}",
    )  # fmt: skip
    yield Lever("fewer_at_once", _("Let fewer requests be at the pool at once"), why,
                (Edit("pools", pool, {"max_concurrency": most}),))  # fmt: skip


def _vectorise(why: Promise | str) -> Lever:
    advice = _(
        "Work for one request after another holds Python's lock: have constraints computed for the whole batch (vLLM "
        "V1's batch-level logits processors, in threads that are no Python), take the fastest grammar backend, and "
        "give constrained work a pool of its own."
    )
    return Lever("batch_constraints", _("Compute constraints for the whole batch"), why, advice=advice)


def _constrained_expr(fleet: Fleet, pool: str) -> str:
    window = fleet.window_seconds
    held = of("headworks_gateway_constrained_requests_total", window, pool=pool)
    return f"sum(increase({held})) / sum(increase({of('headworks_gateway_requests_total', window, pool=pool)}))"
