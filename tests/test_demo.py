"""`headworks demo` with its whole fleet."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from controlplane.demo.fleet import Fleet
from controlplane.demo.plan import GPUS_PER_NODE, NODES
from controlplane.demo.ports import Ports
from controlplane.demo.start import start_all
from controlplane.processes import Supervisor
from tests.demo import DEMO, first_of_free_ports
from tests.services import Process, wait_for


@pytest.mark.timeout(240)
def test_a_demo_names_its_addresses_the_fault_it_offers_reaches_on_call_and_ctrl_c_leaves_no_process(
    tmp_path: Path,
) -> None:
    first = first_of_free_ports()
    environment = {"PYTHONPATH": str(Path.cwd())}
    log = tmp_path / "demo.log"
    with Process(
        [*DEMO, str(first)], log=log, environment=environment, cwd=tmp_path, stop_signal=signal.SIGINT
    ) as demo:
        demo.wait_until(lambda: "Ctrl-C stops everything" in demo.log_tail(), "the hints", 120)
        shown = log.read_text()
        assert f"http://127.0.0.1:{first} " in shown
        assert f"http://127.0.0.1:{first}/dashboards/" in shown
        deliveries = tmp_path / f".headworks/demo-{first}/webhooks.jsonl"
        assert str(deliveries) in shown
        (fault,) = (line for line in shown.splitlines() if "simulator.gpu.fault" in line)
        subprocess.run(shlex.split(fault), check=True, timeout=60, env={**os.environ, **environment})
        wait_for(lambda: "fallen off the bus" in deliveries.read_text(), 30, "on-call to be told of the printed fault")
        started = descendants(demo.pid)
        # Web, worker, four engines, gateway, receiver, traffic; three agents with a child each; three drivers of GPUs.
        assert len(started) >= 18
        assert demo.stop(60) == 0
    assert {pid: born for pid, born in started.items() if born_at(pid) == born} == {}


@pytest.mark.timeout(240)
def test_without_a_compiler_agents_read_the_simulated_gpus_themselves_and_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with Supervisor() as supervisor:
        fleet = Fleet(tmp_path, Ports.free(), supervisor)
        start_all(fleet)
        assert fleet.nvml_library is None
        gpus = wait_for(lambda: all_gpus(fleet), 30, "every GPU in the nodes' reports")
        assert all(gpu["simulated"] for gpu in gpus)
        nodes = fleet.rest.get("/nodes")["items"]
        assert {node["gpu_source"] for node in nodes} == {"simulated"}
        assert all(node["simulated"] and not node["gpu_problems"] for node in nodes)


def all_gpus(fleet: Fleet) -> list[dict[str, Any]]:
    gpus: list[dict[str, Any]] = fleet.rest.get("/gpus")["items"]
    return gpus if len(gpus) == len(NODES) * GPUS_PER_NODE else []


def descendants(pid: int) -> dict[int, str]:
    """Processes below `pid`, each with when it was born: numbers are given again."""
    parents = {int(stat.parent.name): fields_of(stat)[1] for stat in Path("/proc").glob("[0-9]*/stat")}
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in map(str, found)} - found:
        found |= more
    return {child: born for child in found - {pid} if (born := born_at(child)) is not None}


def born_at(pid: int) -> str | None:
    """In ticks since the machine's start; None: there is no such process, or it has ended."""
    fields = fields_of(Path(f"/proc/{pid}/stat"))
    return None if fields[0] in ("", "Z") else fields[19]


def fields_of(stat: Path) -> list[str]:
    """Of proc(5)'s stat, from the third one on, behind the command's name, which may hold anything."""
    try:
        return stat.read_text().rpartition(") ")[2].split()
    except OSError:
        return ["", ""]
