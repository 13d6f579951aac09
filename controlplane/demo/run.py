"""`headworks demo`: run a fleet until interrupted."""

from __future__ import annotations

import fcntl
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controlplane.demo.fleet import Fleet, Profile, python_module
from controlplane.demo.plan import GPUS_PER_NODE, NODES
from controlplane.demo.ports import Ports
from controlplane.demo.start import start_all, start_traffic
from controlplane.processes import StartFailed, Supervisor
from controlplane.serve import PortTaken


class DemoRuns(RuntimeError):
    """Another demo has the directory."""


@contextmanager
def fresh_directory(path: Path) -> Iterator[Path]:
    """An empty directory, held until the block ends; what an earlier demo left there is removed. Raises DemoRuns."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DemoRuns(f"another demo runs in {path}") from error
        if path.exists():
            shutil.rmtree(path)
        path.mkdir(mode=0o700)
        yield path


def run_demo(first_port: int, profile: Profile) -> int:
    """Run until interrupted; the exit status is 1 where it did not start."""
    ports = Ports.following(first_port)
    try:
        ports.check_free()
        # A directory a port: whoever holds it free may empty its directory, and no other. One that is still starting
        # listens nowhere yet, and is known by its lock.
        with fresh_directory(Path(f".headworks/demo-{first_port}").absolute()) as directory:
            return _run(directory, ports, profile)
    except (PortTaken, DemoRuns) as error:
        print(
            f"headworks: {error}; stop what runs there, or give other ports: headworks demo --port 9600",
            file=sys.stderr,
        )
        return 1


def _run(directory: Path, ports: Ports, profile: Profile) -> int:
    print("Starting a control plane, a gateway, three nodes of simulated GPUs and four simulated engines …", flush=True)
    status = 0
    with Supervisor() as supervisor:
        fleet = Fleet(directory, ports, supervisor, profile)
        try:
            start_all(fleet)
            start_traffic(fleet)
            print(_hints(fleet), flush=True)
            supervisor.watch()
        except KeyboardInterrupt:
            # Asked to end, it ends well.
            print("\nStopping …", flush=True)
        except (StartFailed, OSError, RuntimeError) as error:
            print(f"headworks: the demo did not start: {error}", file=sys.stderr)
            status = 1
    print("Stopped", flush=True)
    return status


def _hints(fleet: Fleet) -> str:
    fault = python_module("simulator.gpu.fault", str(fleet.gpu_state(NODES[1])), "--gpu", "3", "xid", "79")
    return f"""
  Pages      {fleet.address}      log in as admin with the password {fleet.password}
  Dashboards {fleet.address}/dashboards/
  REST       {fleet.address}/api/v1/docs
  Gateway    {fleet.gateway_address}/v1   with the key {fleet.keys["support"]} (tenant support)
  On-call    {fleet.deliveries}   gets what the webhook is told
  Logs       {fleet.directory / "log"}

Let {NODES[1]} report that a GPU fell off the bus, and watch it being cordoned and on-call being told:
  {shlex.join(fault)}
Then uncordon it on its page:
  {fleet.address}/fleet/{NODES[1]}/

Engines, traffic and the {len(NODES)} × {GPUS_PER_NODE} GPUs are simulated.
{_gpus_are_read(fleet)} Ctrl-C stops everything."""


def _gpus_are_read(fleet: Fleet) -> str:
    if fleet.nvml_library:
        return "Agents read the GPUs through a simulated NVML library."
    return "No C compiler made a simulated NVML library here: agents read the GPUs' state files."
