"""kill -9 of web, worker, an agent and the gateway, each with something in flight: nothing is lost, nothing doubled."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from controlplane.demo.fleet import Fleet
from controlplane.demo.plan import GATEWAY, NODES
from controlplane.demo_check import incidents as inc
from controlplane.demo_check.clients import served
from controlplane.demo_check.cordoning import CLIENT, FAULTY_NODE, chosen_no_more
from controlplane.demo_check.observe import converge, sample_times
from controlplane.demo_check.steps import Steps, expect, wait_until

# A warning: it opens an incident and cordons nothing.
NVLINK_ERROR = 74
STAYING_NODE, KILLED_NODE = (node for node in NODES if node != FAULTY_NODE)
# Longest time between two samples of a process that was never away, in intervals.
GAP_INTERVALS = 3
# An agent says it once it reads its GPUs, simulated ones too.
READS_GPUS = "NVML is open"


@dataclass(frozen=True)
class Away:
    """When a process was dead, in Unix time."""

    killed_at: float
    back_at: float


class Kills:
    """`interval_seconds`: between two samples of agents and gateway."""

    def __init__(self, fleet: Fleet, interval_seconds: float) -> None:
        self._fleet = fleet
        # A longer time between two samples is a gap.
        self._patience_seconds = GAP_INTERVALS * interval_seconds
        self._began = time.time()
        self._away: dict[str, Away] = {}
        self._spooled: list[inc.Fault] = []
        # From `_worker_killed` on.
        self._waiting: inc.Fault

    def walk(self, steps: Steps) -> None:
        steps.run("web is killed, and two more XIDs are thrown: traffic goes on", self._web_killed)
        steps.run(f"the agent of {KILLED_NODE} is killed with what it could not send, and restarts", self._agent_killed)
        steps.run("the gateway is killed and restarts without a control plane: the cordon holds", self._gateway_killed)
        steps.run("web returns: each event counts once", self._web_returns)
        steps.run("on-call is told of each", self._on_call_is_told)
        steps.run("the worker is killed, and another XID is thrown: its webhook waits", self._worker_killed)
        steps.run("the worker returns: on-call answers 500, then takes it", self._worker_returns)
        steps.run("all targets run the newest revision", self._converges)
        steps.run("no sample is missing but of who was dead", self._samples_are_whole)

    def _web_killed(self) -> str:
        self._fleet.children["web"].kill()
        self._spooled = [
            inc.throw_xid(self._fleet, STAYING_NODE, 1, NVLINK_ERROR),
            inc.throw_xid(self._fleet, KILLED_NODE, 6, NVLINK_ERROR),
        ]
        return self._served_for_longer_than_a_gap()

    def _agent_killed(self) -> str:
        name = f"agent-{KILLED_NODE}"
        log = self._fleet.children[name].log
        uuid = self._spooled[1].uuid
        # It says so once the event is on its disk.
        wait_until(lambda: f"event xid on {uuid}" in log.read_text(), "the agent has the event", 10)
        opened = log.read_text().count(READS_GPUS)
        self._kill(name, lambda: wait_until(lambda: log.read_text().count(READS_GPUS) > opened, "it reads its GPUs"))
        return f"{self._served_for_longer_than_a_gap()}, XID {NVLINK_ERROR} in its spool"

    def _gateway_killed(self) -> str:
        self._kill(GATEWAY)
        return chosen_no_more(self._fleet)

    def _kill(self, name: str, wait_until_back: Callable[[], None] = lambda: None) -> None:
        killed_at = time.time()
        self._fleet.children[name].kill()
        self._fleet.restart(name)
        wait_until_back()
        self._away[name] = Away(killed_at, time.time())

    def _served_for_longer_than_a_gap(self) -> str:
        """What is measured meanwhile shows in the samples, if it is lost."""
        until, count = time.monotonic() + 1.5 * self._patience_seconds, 0
        while time.monotonic() < until:
            served(self._fleet, CLIENT)
            count += 1
        return f"{CLIENT} 200, {count} times"

    def _web_returns(self) -> str:
        self._fleet.restart("web")
        return inc.counted_once(self._fleet, *self._spooled)

    def _on_call_is_told(self) -> str:
        for fault in self._spooled:
            inc.told(self._fleet, fault, "firing")
            # A worker that is killed before it noted the answer rightly sends again; what follows kills it.
            inc.noted(self._fleet, fault)
        return f"{len(self._spooled)} webhooks"

    def _worker_killed(self) -> str:
        self._fleet.children["worker"].kill()
        inc.let_receiver_fail(self._fleet, 1)
        self._waiting = inc.throw_xid(self._fleet, STAYING_NODE, 5, NVLINK_ERROR)
        inc.counted_once(self._fleet, self._waiting)
        (incident,) = inc.incidents_of(self._fleet, self._waiting)
        states = [delivery["state"] for delivery in incident["deliveries"]]
        expect(states == ["waiting"], f"deliveries are {states}")
        return "one delivery waits"

    def _worker_returns(self) -> str:
        self._fleet.restart("worker")
        inc.told(self._fleet, self._waiting, "firing")
        came = inc.attempts_of(self._fleet, self._waiting, "firing")
        answered = [attempt["answered"] for attempt in came]
        expect(answered == [500, 200], f"the receiver answered {answered}")
        expect(len({attempt["delivery"] for attempt in came}) == 1, "the repeat has another delivery id")
        return "one delivery, two attempts"

    def _converges(self) -> str:
        return converge(self._fleet)

    def _samples_are_whole(self) -> str:
        """Those that were measured while the control plane was away included."""
        counts = [self._whole(selector, process) for selector, process in self._pushed().items()]
        return f"{sum(counts)} samples of {len(counts)} series"

    def _pushed(self) -> dict[str, str]:
        """A series of each process that pushes → the process."""
        gpus = {f'DCGM_FI_DEV_GPU_TEMP{{node="{node}",gpu="0"}}': f"agent-{node}" for node in NODES}
        return {**gpus, f'headworks_gateway_config_revision{{gateway="{GATEWAY}"}}': GATEWAY}

    def _whole(self, selector: str, process: str) -> int:
        """Wait until the series has no gap but while its process was dead; the number of its samples."""
        times: list[float] = []
        gaps: list[tuple[float, float]] = []

        def is_whole() -> bool:
            times[:] = [self._began, *sample_times(self._fleet, selector, self._began), time.time()]
            gaps[:] = [gap for gap in pairwise(times) if not self._excused(process, *gap)]
            return not gaps

        wait_until(is_whole, f"no gap in {selector}", 20, seen=lambda: f"{gaps}, away: {self._away.get(process)}")
        return len(times) - 2

    def _excused(self, process: str, start: float, end: float) -> bool:
        if end - start <= self._patience_seconds:
            return True
        away = self._away.get(process)
        if away is None:
            return False
        return start > away.killed_at - self._patience_seconds and end < away.back_at + self._patience_seconds
