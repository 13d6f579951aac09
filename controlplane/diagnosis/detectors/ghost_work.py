"""Row 11: engines that compute for clients who are gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from django.utils.functional import Promise
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from controlplane.diagnosis.detector import Command, Detector, Evidence, Finding, Fleet, Lever, Readings
from controlplane.diagnosis.detectors.confidence import combined, lowered
from controlplane.diagnosis.detectors.engine_acts import drained_restart, may
from controlplane.diagnosis.detectors.numbers import named, of, share
from controlplane.diagnosis.detectors.promql import counted, per_second, quantile

_LEFT = 'headworks_gateway_requests_total{reason=~"client_left|deadline_exceeded"}'


class GhostWork(Detector):
    """More runs at an engine than gateways hold there, while clients leave: the disconnect is lost behind the gateway.

    Or most of what leavers were sent was never passed on: it is lost before the gateway, in a proxy that holds the
    connection. Somebody who asks an engine directly looks like the first, which is why it counts only where clients
    leave, and for less where fewer left than would explain it. A hung engine (an event of its own) runs no more than
    gateways hold.
    """

    number = 11
    name = "ghost_work"
    title = _("Ghost work")
    explanation = _(
        "A client times out or closes the page, and the engine goes on generating: nobody gets the answer, and the GPU "
        "is busy meanwhile. The cancellation must travel from the client to the engine, which takes the sequence out "
        "of the batch and gives its KV blocks back; one link that swallows the signal breaks the chain."
    )
    queries: ClassVar = {
        "running": "sum by (engine) (avg_over_time(headworks_engine_requests_running[$window]))",
        "waiting": "sum by (engine) (avg_over_time(headworks_engine_requests_waiting[$window]))",
        "held": "sum by (engine) (avg_over_time(headworks_gateway_engine_sequences[$window]))",
        "left": counted(_LEFT, "pool", "tenant"),
        "engine_tokens": per_second("headworks_engine_generation_tokens_total", "pool"),
        "gateway_tokens": per_second("headworks_gateway_generation_tokens_total", "pool"),
        "cancelled_tokens": counted("headworks_gateway_cancelled_tokens_total", "pool"),
        "write_seconds": counted("headworks_gateway_body_write_seconds_total", "pool"),
        "after_cancel": counted("headworks_gateway_tokens_after_cancel_total", "pool"),
        "longest": quantile(0.99, "headworks_gateway_e2e_seconds", "pool"),
    }
    # A canary, a conformance probe or a warm-up is one request that no gateway holds.
    GHOSTS_LEAST = 2.0
    # Looks of gateways and agents at an engine are seconds apart: a busy engine differs by some.
    GHOSTS_SHARE = 0.2
    LEFT_LEAST = 3.0
    # A gateway passes on what comes at once, and falls behind where it is short of processor time: that makes late
    # tokens, too. Somebody who holds a connection and takes nothing keeps it waiting for seconds besides.
    AFTER_CANCEL_SHARE = 0.5
    CANCELLED_TOKENS_LEAST = 200.0
    WRITE_SECONDS_A_LEAVER = 5.0
    # Engines count tokens as they are made, gateways when a request ends.
    TOKENS_BEYOND_SHARE = 0.1

    def judge(self, readings: Readings, fleet: Fleet) -> Iterator[Finding]:
        left: dict[str, dict[str, float]] = {}
        for (pool, tenant), count in readings.by("left", "pool", "tenant").items():
            left.setdefault(pool, {})[tenant] = count
        yield from self._behind(readings, fleet, left)
        yield from self._before(readings, fleet, left)

    def _behind(self, readings: Readings, fleet: Fleet, left: dict[str, dict[str, float]]) -> Iterator[Finding]:
        running, waiting = named(readings.by("running", "engine")), named(readings.by("waiting", "engine"))
        held = named(readings.by("held", "engine"))
        for engine in sorted(running.keys() & held.keys() & fleet.engines.keys()):
            pool = str(fleet.engines[engine]["pool"])
            at_engine = running[engine] + waiting.get(engine, 0.0)
            ghosts = at_engine - held[engine]
            leavers = sum(left.get(pool, {}).values())
            if ghosts < max(self.GHOSTS_LEAST, self.GHOSTS_SHARE * at_engine) or leavers < self.LEFT_LEAST:
                continue
            longest = readings.by_pool("longest").get(pool, 0.0)
            beyond = self._tokens_beyond(readings, pool)
            signals = [600]
            signals += [500] * (beyond >= self.TOKENS_BEYOND_SHARE) + [400] * (ghosts >= at_engine / 2)
            confidence = combined(*signals)
            # Little's law: no more of them can be there than left within the life of one.
            explained = leavers / fleet.window_seconds * longest
            if longest > 0 and ghosts > 2 * explained:
                confidence = lowered(confidence, 600)
            evidence = (
                Evidence("ghosts", round(ghosts, 2), "requests", self.GHOSTS_LEAST,
                         f"sum({of('headworks_engine_requests_running', engine=engine)})"
                         f" - sum({of('headworks_gateway_engine_sequences', engine=engine)})"),
                Evidence("running", round(running[engine], 2), "requests", None,
                         of("headworks_engine_requests_running", engine=engine)),
                Evidence("held_by_gateways", round(held[engine], 2), "requests", None,
                         f"sum({of('headworks_gateway_engine_sequences', engine=engine)})"),
                Evidence("left", round(leavers, 1), "requests", self.LEFT_LEAST, _left_expr(fleet, pool)),
                Evidence("engine_tokens_beyond_gateways", round(beyond, 3), "ratio", self.TOKENS_BEYOND_SHARE),
            )  # fmt: skip
            said = format_lazy(
                _("{engine} runs {ghosts} requests that no gateway holds any more; {left} clients have left"),
                engine=engine, ghosts=f"{ghosts:.0f}", left=f"{leavers:.0f}",
            )  # fmt: skip
            levers = self._levers_behind(fleet, engine, ghosts, at_engine, longest)
            yield Finding(
                f"engine/{engine}", said, confidence, evidence, (pool,), _names(left.get(pool, {})),
                levers,
            )  # fmt: skip

    def _tokens_beyond(self, readings: Readings, pool: str) -> float:
        """The share of the engines' tokens that no gateway had."""
        made = readings.by_pool("engine_tokens").get(pool, 0.0)
        return share(made - readings.by_pool("gateway_tokens").get(pool, made), made)

    def _levers_behind(
        self, fleet: Fleet, engine: str, ghosts: float, at_engine: float, longest: float
    ) -> tuple[Lever, ...]:
        why = format_lazy(
            _("{ghosts} of {all} requests at {engine} are nobody's"),
            ghosts=f"{ghosts:.0f}", all=f"{at_engine:.0f}", engine=engine,
        )  # fmt: skip
        levers = []
        if commands := drained_restart(fleet, engine, longest_seconds=longest):
            levers.append(
                Lever("drain_and_restart", _("Drain the engine, then restart it"), why, commands=commands,
                      advice=_("Uncordon it once it serves."))
            )  # fmt: skip
        if may(fleet, engine, "pause") and may(fleet, engine, "resume") and ghosts >= at_engine / 2:
            subject = f"engine/{engine}"
            abort = Command(subject, "pause", {"mode": "abort"}), Command(subject, "resume")
            levers.append(Lever("abort", _("Abort what runs on the engine"), why, commands=abort,
                                advice=_("Requests that somebody waits for are aborted, too.")))  # fmt: skip
        levers.append(
            Lever("mend_link", _("Mend the link behind the gateway"), why, advice=_behind_advice(fleet, engine))
        )
        return tuple(levers)

    def _before(self, readings: Readings, fleet: Fleet, left: dict[str, dict[str, float]]) -> Iterator[Finding]:
        after = readings.by_pool("after_cancel")
        for pool, tokens in sorted(readings.by_pool("cancelled_tokens").items()):
            late = share(after.get(pool, 0.0), tokens)
            if tokens < self.CANCELLED_TOKENS_LEAST or late < self.AFTER_CANCEL_SHARE:
                continue
            held = share(readings.by_pool("write_seconds").get(pool, 0.0), sum(left.get(pool, {}).values()))
            if held < self.WRITE_SECONDS_A_LEAVER:
                continue
            window = fleet.window_seconds
            evidence = (
                Evidence("tokens_after_cancel", round(late, 3), "ratio", self.AFTER_CANCEL_SHARE,
                         f"sum(increase({of('headworks_gateway_tokens_after_cancel_total', window, pool=pool)}))"
                         f" / sum(increase({of('headworks_gateway_cancelled_tokens_total', window, pool=pool)}))"),
                Evidence("cancelled_tokens", round(tokens), "tokens", self.CANCELLED_TOKENS_LEAST,
                         f"sum(increase({of('headworks_gateway_cancelled_tokens_total', window, pool=pool)}))"),
                Evidence("waited_to_write_for_each_that_left", held, "seconds", self.WRITE_SECONDS_A_LEAVER),
            )  # fmt: skip
            said = format_lazy(
                _("{share} % of what leavers of {pool} were sent came after nobody read any more"),
                share=f"{late * 100:.0f}", pool=pool,
            )  # fmt: skip
            lever = Lever(
                "mend_proxy", _("Have the proxy before the gateways close its side"), said,
                advice=_(
                    "A proxy or client before the gateways stops reading long before it closes. In NGINX set "
                    "proxy_buffering off and proxy_ignore_client_abort off, in HAProxy option abortonclose; the page "
                    "In front of the gateways has whole configurations."
                ),
            )  # fmt: skip
            confidence = combined(600, *[500] * (held >= 2 * self.WRITE_SECONDS_A_LEAVER))
            yield Finding(f"pool/{pool}", said, confidence, evidence, (pool,), _names(left.get(pool, {})), (lever,))


def _behind_advice(fleet: Fleet, engine: str) -> Promise | str:
    kind = fleet.engines.get(engine, {}).get("kind", "")
    if kind == "triton":
        return _(
            "Triton hears of a closed connection only where its model handles cancellation: use its vLLM backend's "
            "newest version, and stream. No router may stand between gateway and engine that keeps the connection open."
        )
    return _(
        "Point the engine's URL at the engine itself: a router between gateway and engine must pass a closed "
        "connection on, of answers that are no streams, too. Where it does, the engine's own server swallows it (in "
        "Python, a cancellation is no Exception: clean up in finally): update the engine."
    )


def _left_expr(fleet: Fleet, pool: str) -> str:
    selector = _LEFT.replace("{", f'{{pool="{pool}",')
    return f"sum(increase({selector}[{fleet.window_seconds}s]))"


def _names(counts: dict[str, float]) -> tuple[str, ...]:
    """Those who left most first."""
    return tuple(sorted((name for name, count in counts.items() if count > 0), key=lambda name: (-counts[name], name)))
