"""The fault loop: a GPU's XID cordons its node and reaches on-call, whoever is killed meanwhile, and is taken back."""

from __future__ import annotations

from controlplane.demo.fleet import Fleet
from controlplane.demo_check import cordoning, incidents
from controlplane.demo_check.kills import Kills
from controlplane.demo_check.steps import Steps

# Seconds of a check stand for minutes of a fleet.
_INTERVAL_SECONDS = 1
SETTINGS = {
    "HEADWORKS_AGENT_PROBE_INTERVAL_SECONDS": str(_INTERVAL_SECONDS),
    "HEADWORKS_AGENT_GPU_INTERVAL_SECONDS": str(_INTERVAL_SECONDS),
    "HEADWORKS_GATEWAY_PUSH_INTERVAL_SECONDS": str(_INTERVAL_SECONDS),
    "HEADWORKS_RULE_INTERVAL_SECONDS": str(_INTERVAL_SECONDS),
}


def fault_loop(fleet: Fleet, steps: Steps) -> None:
    """XID → cordon → webhook; then each process is killed with something in flight; then all is taken back."""
    steps.run("what the dashboard draws is there", lambda: cordoning.samples_are_there(fleet))
    steps.run("all that is simulated says so", lambda: cordoning.simulated_is_labelled(fleet))
    steps.run("on-call takes a signed test message", lambda: cordoning.test_message(fleet))
    steps.run("the worker evaluates the alert rules", lambda: cordoning.rules_are_evaluated(fleet))
    fault = cordoning.Cordoning(fleet)
    fault.begin(steps)
    Kills(fleet, _INTERVAL_SECONDS).walk(steps)
    fault.end(steps)
    steps.run("nothing came twice, and nothing unsigned", lambda: incidents.check_all_messages(fleet))
