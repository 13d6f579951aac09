"""The acts loop: an engine is drained, put to sleep and woken by REST, and what its node does not allow is refused."""

from __future__ import annotations

import time
from typing import Any

from controlplane.demo.fleet import Fleet
from controlplane.demo.plan import ENGINES
from controlplane.demo_check.clients import served
from controlplane.demo_check.observe import applied_everywhere, taken_by
from controlplane.demo_check.steps import Steps, expect, wait_until

CLIENT = "support"
ENGINE = "short-1"
OTHERS = [name for name, (pool, _) in ENGINES.items() if pool == ENGINES[ENGINE][0] and name != ENGINE]
# What runs there when the drain begins is some thousand tokens at most.
DRAIN_LIMIT_SECONDS = 120
DONE_LIMIT_SECONDS = 5.0
PROBES = 4


def acts_loop(fleet: Fleet, steps: Steps) -> None:
    """drain → sleep → the pool goes on → wake; then an act that the node's policy does not allow."""
    steps.run(f"{ENGINE} is drained, which cordons it", lambda: _drain(fleet))
    steps.run("it is put to sleep", lambda: _done_in_time(fleet, "sleep"))
    steps.run("its page says that it sleeps", lambda: _shows(fleet, "sleeping"))
    steps.run("the gateway serves from the others of its pool", lambda: _others_serve(fleet))
    steps.run("it is woken", lambda: _done_in_time(fleet, "wake"))
    steps.run("its page says that it is well", lambda: _shows(fleet, "ok"))
    steps.run("it takes work again", lambda: _serves_again(fleet))
    steps.run("a restart, which its node does not allow, is refused by name", lambda: _not_allowed(fleet))


def _ask(fleet: Fleet, action: str, **arguments: Any) -> tuple[dict[str, Any], float]:
    """What became of an act, and after how many seconds the control plane knew. Raises: NotHeld."""
    began = time.monotonic()
    asked = {"action": action, "engine": ENGINE, "arguments": arguments}
    act_id = fleet.rest.post("/acts", asked, reason="check: acts")["item"]["id"]
    seen: list[dict[str, Any]] = []

    def ended() -> bool:
        seen[:] = [fleet.rest.get(f"/acts/{act_id}")]
        return seen[0]["state"] not in ("waiting", "running")

    wait_until(ended, f"an end of {action}", DRAIN_LIMIT_SECONDS, seen=lambda: seen)
    return seen[0], time.monotonic() - began


def _done(fleet: Fleet, action: str, **arguments: Any) -> float:
    act, seconds = _ask(fleet, action, **arguments)
    expect(act["state"] == "done", f"{action} is {act['state']}: {act['result_reason']}: {act['detail']}")
    return seconds


def _drain(fleet: Fleet) -> str:
    seconds = _done(fleet, "drain", limit_seconds=DRAIN_LIMIT_SECONDS)
    expect(fleet.rest.get(f"/engines/{ENGINE}")["cordoned"], "a drained engine is not cordoned")
    return f"after {seconds:.1f} s nothing runs there"


def _done_in_time(fleet: Fleet, action: str) -> str:
    seconds = _done(fleet, action)
    expect(seconds <= DONE_LIMIT_SECONDS, f"{action} took {seconds:.1f} s, more than {DONE_LIMIT_SECONDS} s")
    return f"done and known after {seconds:.2f} s"


def _shows(fleet: Fleet, condition: str) -> str:
    def shown() -> str:
        return str(fleet.rest.get(f"/engines/{ENGINE}")["condition"])

    wait_until(lambda: shown() == condition, f"condition {condition}", seen=shown)
    return condition


def _others_serve(fleet: Fleet) -> str:
    before, others_before = taken_by(fleet, [ENGINE]), taken_by(fleet, OTHERS)
    for _ in range(PROBES):
        served(fleet, CLIENT)
    expect(taken_by(fleet, [ENGINE]) == before, f"{ENGINE} got requests in its sleep")
    grown = {name: count - others_before[name] for name, count in taken_by(fleet, OTHERS).items()}
    expect(any(count > 0 for count in grown.values()), f"the others did not take over: {grown}")
    return ", ".join(f"{count} to {name}" for name, count in grown.items())


def _serves_again(fleet: Fleet) -> str:
    written = fleet.rest.post(f"/engines/{ENGINE}/uncordon", reason="check: acts", wait="applied", timeout=10)
    applied_everywhere(written)
    before = taken_by(fleet, [ENGINE])[ENGINE]

    def chosen() -> bool:
        served(fleet, CLIENT)
        return taken_by(fleet, [ENGINE])[ENGINE] > before

    wait_until(chosen, f"a request at {ENGINE}")
    return f"{ENGINE} is chosen"


def _not_allowed(fleet: Fleet) -> str:
    act, _ = _ask(fleet, "restart")
    expect(
        (act["state"], act["result_reason"]) == ("refused", "not_allowed"),
        f"a restart is {act['state']}: {act['result_reason']}: {act['detail']}",
    )
    return str(act["detail"])
