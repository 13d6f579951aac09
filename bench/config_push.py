"""From publishing a quota change to every target running it, with all of them on this machine.

A real web process with SQLite and two hundred enrolled targets (`--targets`): twenty are gateways with the whole
configuration, the others nodes' agents with their own part. All clients are one process that verifies each hash and
acknowledges; its CPU time is told apart. One tenant's quota changes every second for 20 seconds, then a node is
cordoned, so that an agent is told something too.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from controlplane.rest_client import Rest
from wire import PROTOCOL

GATEWAYS = 20
TENANTS = 100
CHANGES = 20
CHANGE_EVERY_SECONDS = 1.0
START_SECONDS = 60.0
CONVERGE_SECONDS = 30.0
PUBLISH_TO_APPLIED_P99_MS = 1000.0
REASON = "benchmark"
MODEL = {"name": "bench/model", "max_context_tokens": 8192, "default_max_tokens": 256, "max_tokens": 2048}


def main(argv: list[str] | None = None) -> int:
    """Prints a table, then one JSON object. Exit status 0 only if the targets hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", type=int, default=200, help="gateways and agents together (default: 200)")
    targets = parser.parse_args(argv).targets
    if targets < 2:
        parser.error("--targets: give at least 2, a gateway and an agent")
    with tempfile.TemporaryDirectory(prefix="headworks-bench-") as folder, web_process(Path(folder)) as (rest, web):
        figures = measure(rest, web, targets)
    holds = figures["publish_to_applied_p99_ms"] <= PUBLISH_TO_APPLIED_P99_MS and figures["converged"] == 1
    print(__doc__)
    for name, value in figures.items():
        print(f"{name:34} {value:12.3f}")
    limits = {
        "publish_to_applied_p99_ms": f"at most {PUBLISH_TO_APPLIED_P99_MS:g}",
        "converged": "1: all targets run the newest revision at the end",
    }
    print(json.dumps({"benchmark": "config_push", "figures": figures, "targets": limits, "holds": holds}))
    return 0 if holds else 1


def measure(rest: Rest, web: int, targets: int) -> dict[str, float]:
    gateways = min(GATEWAYS, targets - 1)
    tokens = fill(rest, gateways, targets - gateways)
    with clients(rest.base_url, tokens) as following:
        wait_for(lambda: standing(rest)["applied"] == targets, "all targets on the first revision")
        began, cpu_before = time.monotonic(), cpu_seconds(web)
        for number in range(CHANGES):
            rest.patch("/tenants/tenant-0", {"tpm_limit": 1000 + number})
            time.sleep(max(0.0, began + (number + 1) * CHANGE_EVERY_SECONDS - time.monotonic()))
        measured_seconds, cpu_used = time.monotonic() - began, cpu_seconds(web) - cpu_before
        rest.post("/nodes/node-0/cordon")
        cordoned = time.monotonic()
        converged = wait_until(lambda: all_run_newest(rest, targets), CONVERGE_SECONDS)
        converge_seconds = time.monotonic() - cordoned
        resident = resident_mib(web)
        result = following()
    published = {item["number"]: epoch_ms(item["published_at"]) for item in rest.get("/revisions", limit=1000)["items"]}
    first_changed = max(published) - CHANGES
    waits = [at - published[revision] for revision, at in result["applied"] if revision >= first_changed]
    return {
        "targets": targets,
        "gateways": gateways,
        "pushes_measured": len(waits),
        "publish_to_applied_p50_ms": statistics.median(waits),
        "publish_to_applied_p99_ms": statistics.quantiles(waits, n=100)[98],
        "publish_to_applied_max_ms": max(waits),
        "change_to_all_applied_ms": round(converge_seconds * 1000),
        "converged": int(converged),
        "server_cpu_percent": round(100 * cpu_used / measured_seconds, 1),
        "server_resident_mib": resident,
        "clients_cpu_seconds": round(result["cpu_seconds"], 2),
    }


def fill(rest: Rest, gateways: int, nodes: int) -> list[str]:
    """A fleet with an engine a node, tenants, and enrolled targets; their tokens."""
    rest.post("/models", MODEL)
    rest.post("/pools", {"name": "pool", "model": MODEL["name"]})
    tokens = [enrol(rest, "gateway", f"gateway-{number}") for number in range(gateways)]
    for number in range(nodes):
        tokens.append(enrol(rest, "node", f"node-{number}"))
        address = f"http://10.1.{number // 250}.{number % 250 + 1}:8000"
        engine = {"name": f"engine-{number}", "url": address, "pool": "pool", "served_model": "m"}
        rest.post("/engines", {**engine, "node": f"node-{number}"})
    for number in range(TENANTS):
        rest.post("/tenants", {"name": f"tenant-{number}", "tpm_limit": 60_000, "models": [MODEL["name"]]})
    return tokens


def enrol(rest: Rest, kind: str, name: str) -> str:
    secret = rest.post("/targets/join-tokens", {"kind": kind, "name": name})["secret"]
    body = {"join_token": secret, "kind": kind, "name": name, "version": "bench", "protocol": PROTOCOL}
    return str(rest.post("/targets/enrol", body)["token"])


def standing(rest: Rest) -> dict[str, Any]:
    answer: dict[str, Any] = rest.get("/config/convergence")
    return answer


def all_run_newest(rest: Rest, targets: int) -> bool:
    stands = standing(rest)
    # One more than the quota changes made: the cordon has been published.
    cordoned = any(entry["reasons"] == [REASON] and "nodes" in str(entry["changed"]) for entry in newest(rest))
    return bool(stands["applied"] == targets and cordoned)


def newest(rest: Rest) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = rest.get("/revisions", limit=1)["items"]
    return items


@contextmanager
def web_process(folder: Path) -> Iterator[tuple[Rest, int]]:
    """A control plane with its own database, as an admin's script and a process id."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    embedded = {"HEADWORKS_DATABASE_URL": "", "HEADWORKS_REDIS_URL": ""}
    own = {"HEADWORKS_DATA_DIR": str(folder), "HEADWORKS_HOST": "127.0.0.1", "HEADWORKS_PORT": str(port)}
    # Its nodes follow their streams and report nothing: silent, and not lost.
    patient = {"HEADWORKS_TARGET_SILENT_SECONDS": "3600"}
    environment = {**os.environ, **embedded, **own, **patient}

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "controlplane.cli", *words]
        return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout

    run("migrate")
    token = run("create-token", "admin", "bench", "--role", "admin").strip()
    with (folder / "web.log").open("wb") as log:
        command = [sys.executable, "-m", "controlplane.cli", "web"]
        web = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: answers(f"{url}/readyz"), "the web process")
        yield Rest(url, token, REASON), web.pid
    finally:
        web.terminate()
        try:
            web.wait(10)
        except subprocess.TimeoutExpired:
            web.kill()
            web.wait()


@contextmanager
def clients(url: str, tokens: list[str]) -> Iterator[Callable[[], dict[str, Any]]]:
    """The targets' process, all of them following; calling what is yielded ends it and gives what it noted."""
    command = [sys.executable, "-m", "bench.support.push_clients", f"{url}/api/v1"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stdin, stdout = _pipes(process)
    try:
        stdin.write("\n".join(tokens))
        stdin.close()
        if stdout.readline().strip() != "ready":
            raise RuntimeError("the targets did not get their first slice")

        def end() -> dict[str, Any]:
            process.send_signal(signal.SIGTERM)
            noted: dict[str, Any] = json.loads(stdout.readline())
            return noted

        yield end
    finally:
        process.kill()
        process.wait()


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the process has no pipes")
    return process.stdin, process.stdout


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except (urllib.error.URLError, OSError):
        return False


def wait_until(condition: Callable[[], bool], timeout_seconds: float) -> bool:
    deadline = time.monotonic() + timeout_seconds
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return met


def wait_for(condition: Callable[[], bool], what: str) -> None:
    if not wait_until(condition, START_SECONDS):
        raise RuntimeError(f"waited {START_SECONDS:g} s for {what}")


def epoch_ms(iso: str) -> int:
    return round(datetime.fromisoformat(iso).timestamp() * 1000)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its threads so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (resident,) = [line for line in lines if line.startswith("VmRSS:")]
    return round(int(resident.split()[1]) / 1024, 1)


if __name__ == "__main__":
    sys.exit(main())
