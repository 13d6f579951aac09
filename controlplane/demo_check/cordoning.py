"""A GPU's XID: its node is cordoned, its engines get nothing more, on-call is told; and how it is taken back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from controlplane.demo.fleet import Fleet
from controlplane.demo.plan import ENGINES, GATEWAY, GPUS_PER_NODE, NODES, POOLS, RECEIVER, engines_of
from controlplane.demo_check import incidents as inc
from controlplane.demo_check.clients import Stream, served
from controlplane.demo_check.observe import applied_everywhere, number, running_on, standing_of, taken_by
from controlplane.demo_check.steps import Steps, expect, wait_until

CLIENT = "support"
FAULTY_NODE, FAULTY_GPU = NODES[1], 3
FELL_OFF_THE_BUS = 79
CORDON_LIMIT_SECONDS = 2.0
WEBHOOK_LIMIT_SECONDS = 5.0
CORDONED = engines_of(FAULTY_NODE)
GPUS = len(NODES) * GPUS_PER_NODE
# PromQL → its value once every series is there.
_DRAWN = {
    "count(DCGM_FI_DEV_GPU_TEMP)": GPUS,
    "count(DCGM_FI_DEV_GPU_UTIL)": GPUS,
    "count(headworks_engine_kv_cache_usage_ratio)": len(ENGINES),
    "count(headworks_engine_up == 1)": len(ENGINES),
    "count(sum by (pool) (headworks_gateway_ttft_seconds_count) > 0)": len(POOLS),
}
# An external server may show a sample only later: VictoriaMetrics 30 s later, where it is not told otherwise.
SAMPLES_SECONDS = 60
# Enough that some run on each engine of their pool, and long enough that they still do when its node is cordoned.
STREAMS = 4
STREAM_TOKENS = 1000
# Requests of each kind that are sent to see where they go.
PROBES = 4


def samples_are_there(fleet: Fleet) -> str:
    """Of each GPU, of each engine, of the gateway: what the dashboard draws."""
    for long in (False, True):
        Stream(fleet, CLIENT, 16, long=long).wait(30)

    def missing() -> dict[str, float]:
        seen = {promql: number(fleet, promql) for promql in _DRAWN}
        return {promql: value for promql, value in seen.items() if value != _DRAWN[promql]}

    wait_until(lambda: not missing(), "every series", SAMPLES_SECONDS, seen=missing)
    return f"{GPUS} GPUs, {len(ENGINES)} engines, TTFT of the gateway"


def simulated_is_labelled(fleet: Fleet) -> str:
    """Each node and each GPU, by its own report; each engine, by its version."""
    nodes, gpus, engines = (fleet.rest.get(path)["items"] for path in ("/nodes", "/gpus", "/engines"))
    counts = len(nodes), len(gpus), len(engines)
    expect(counts == (len(NODES), GPUS, len(ENGINES)), f"nodes, GPUs and engines are {counts}")
    unlabelled = [item["name"] for item in nodes if not item["simulated"]]
    unlabelled += [item["uuid"] for item in gpus if not item["simulated"]]
    unlabelled += [item["name"] for item in engines if "simulated" not in (item["version"] or "")]
    expect(not unlabelled, f"shown as if they were real: {unlabelled}")
    return "{} nodes, {} GPUs, {} engines".format(*counts)


def test_message(fleet: Fleet) -> str:
    before = len(inc.attempts(fleet))
    fleet.rest.post(f"/receivers/{RECEIVER}/test")
    wait_until(lambda: len(inc.attempts(fleet)) > before, "the test message arrives", 10)
    inc.check_message(inc.attempts(fleet)[-1])
    return "signature valid, body of version 4"


def rules_are_evaluated(fleet: Fleet) -> str:
    """From now on: a worker that was killed before is back."""
    now, brought = datetime.now(UTC), len(_rules(fleet))

    def evaluated() -> bool:
        rules = _rules(fleet)
        failed = {rule["name"]: rule["last_error"] for rule in rules if rule["last_error"]}
        expect(not failed, f"rules that could not be evaluated: {failed}")
        return all(rule["evaluated_at"] and datetime.fromisoformat(rule["evaluated_at"]) > now for rule in rules)

    wait_until(evaluated, f"an evaluation of each of {brought} rules", 30)
    return f"{brought} rules"


def _rules(fleet: Fleet) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = fleet.rest.get("/rules", limit=1000)["items"]
    return [rule for rule in found if rule["enabled"]]


def chosen_no_more(fleet: Fleet) -> str:
    """Requests of both pools are served, and none of them goes to the cordoned node's engines."""
    others = [name for name in ENGINES if name not in CORDONED]
    least, others_before = taken_by(fleet, CORDONED), taken_by(fleet, others)
    for _ in range(PROBES):
        for long in (False, True):
            served(fleet, CLIENT, long=long)
            now = taken_by(fleet, CORDONED)
            rose = [name for name in CORDONED if now[name] > least[name]]
            expect(not rose, f"{rose} got new requests: {now} after {least}")
            # A client that leaves lowers the count.
            least = {name: min(now[name], least[name]) for name in CORDONED}
    grown = {name: count - others_before[name] for name, count in taken_by(fleet, others).items()}
    expect(all(count > 0 for count in grown.values()), f"the others did not take over: {grown}")
    return f"0 to {', '.join(CORDONED)}; " + ", ".join(f"{count} to {name}" for name, count in grown.items())


class Cordoning:
    """The way of one fault, from the throw to its being taken back."""

    # From `_throw` on.
    _fault: inc.Fault

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._streams: list[Stream] = []

    def begin(self, steps: Steps) -> None:
        gpu = f"GPU {FAULTY_GPU} of {FAULTY_NODE}"
        steps.run("streams run on every engine of the short pool", self._streams_run)
        steps.run(f"XID {FELL_OFF_THE_BUS} is thrown on {gpu}: the node is cordoned", self._throw)
        steps.run("the cordon is applied at the gateway, and by the agent", self._cordon_applied)
        steps.run("a signed webhook reaches on-call", self._on_call_is_told)
        steps.run("the gateway chooses the node's engines no more", lambda: chosen_no_more(self._fleet))
        steps.run("what ran there ends by itself", self._streams_end)
        steps.run("the incident's time line tells it all", self._time_line)

    def end(self, steps: Steps) -> None:
        steps.run("the node is uncordoned: its engines are chosen again", self._uncordon)
        steps.run("the incident is resolved, and on-call is told", self._resolved)

    def _streams_run(self) -> str:
        fleet = self._fleet
        self._streams = [Stream(fleet, CLIENT, STREAM_TOKENS) for _ in range(STREAMS)]
        wait_until(lambda: all(stream.begun.is_set() for stream in self._streams), "every stream has begun", 10)
        pool = [name for name, (pool, _) in ENGINES.items() if pool == "short"]
        running = running_on(fleet, pool)
        expect(all(running.values()), f"not on every engine: {running}")
        return ", ".join(f"{count} on {name}" for name, count in running.items())

    def _throw(self) -> str:
        fleet = self._fleet
        self._fault = inc.throw_xid(fleet, FAULTY_NODE, FAULTY_GPU, FELL_OFF_THE_BUS)
        path = f"/nodes/{FAULTY_NODE}"
        wait_until(lambda: bool(fleet.rest.get(path)["cordoned"]), f"{FAULTY_NODE} is cordoned", 15)
        reason = fleet.rest.get(path)["cordon_reason"]
        said = f"XID {FELL_OFF_THE_BUS}", f"GPU {FAULTY_GPU}"
        expect(all(part in reason for part in said), f"the reason does not name {said}: {reason!r}")
        return f"{reason!r}"

    def _cordon_applied(self) -> str:
        (cordoned,) = (entry for entry in self._incident()["entries"] if entry["kind"] == "cordoned")
        revision: int = cordoned["details"]["revision"]
        gateway: dict[str, Any] = {}

        def acked() -> bool:
            gateway.update(standing_of(self._fleet, "gateway", GATEWAY))
            return int(gateway["acked_revision"] or 0) >= revision

        wait_until(acked, f"{GATEWAY} runs revision {revision}", 15)
        after = inc.seconds_after(self._fault, datetime.fromisoformat(gateway["applied_at"]))
        node = f"/nodes/{FAULTY_NODE}"
        wait_until(lambda: bool(self._fleet.rest.get(node)["cordon_applied"]), "its agent reports the cordon", 10)
        return f"revision {revision}, {_within(after, CORDON_LIMIT_SECONDS)}"

    def _on_call_is_told(self) -> str:
        attempt = inc.told(self._fleet, self._fault, "firing", 15)
        inc.check_message(attempt)
        return _within(inc.seconds_after(self._fault, inc.received_at(attempt)), WEBHOOK_LIMIT_SECONDS)

    def _streams_end(self) -> str:
        outcomes = [stream.wait(60) for stream in self._streams]
        expect(outcomes == ["whole"] * STREAMS, f"streams were cut: {outcomes}")
        idle = dict.fromkeys(CORDONED, 0)
        wait_until(lambda: running_on(self._fleet, CORDONED) == idle, f"{', '.join(CORDONED)} run nothing", 60)
        return f"{STREAMS} streams whole; {', '.join(CORDONED)} run nothing"

    def _time_line(self) -> str:
        kinds: list[str] = []

        def told() -> bool:
            kinds[:] = [entry["kind"] for entry in self._incident()["entries"]]
            return {"started", "cordoned", "delivered"} <= set(kinds)

        wait_until(told, "it says started, cordoned, delivered", 10, seen=lambda: kinds)
        incident = self._incident()
        seen = incident["state"], incident["severity"], len(incident["events"])
        expect(seen == ("firing", "critical", 1), f"not a firing critical one of one event: {seen}")
        return ", ".join(kinds)

    def _uncordon(self) -> str:
        fleet = self._fleet
        reason = "check: the GPU was reset and tested"
        written = fleet.rest.post(f"/nodes/{FAULTY_NODE}/uncordon", reason=reason, wait="applied", timeout=10)
        stands = applied_everywhere(written)
        before = taken_by(fleet, CORDONED)

        def chosen() -> bool:
            for long in (False, True):
                served(fleet, CLIENT, long=long)
            return all(count > before[name] for name, count in taken_by(fleet, CORDONED).items())

        wait_until(chosen, f"{', '.join(CORDONED)} get requests again", 20)
        return f"revision {stands['revision']}"

    def _resolved(self) -> str:
        expect(self._incident()["state"] == "resolved", f"the incident is {self._incident()['state']}")
        inc.check_message(inc.told(self._fleet, self._fault, "resolved", 15))
        return "signature valid"

    def _incident(self) -> dict[str, Any]:
        (incident,) = inc.incidents_of(self._fleet, self._fault)
        return incident


def _within(seconds: float, limit_seconds: float) -> str:
    said = f"{seconds:.3f} s after the throw (limit {limit_seconds:g} s)"
    expect(seconds <= limit_seconds, said)
    return said
