"""`python -m simulator.gpu.drive STATE --gpus N --seed S --engine-url URL ...`: keep simulated GPUs at work.

GPUs are shared out among the engines in order; each follows the requests that its engine runs. Without an engine the
load wanders. A state file that exists is gone on from; it is made where there is none.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from simulator.gpu.load import GpuModel, Load, Wander
from simulator.gpu.state import StateFile, healthy_machine
from wire.settings import base_url, number, whole_number

_PAGE_TIMEOUT_SECONDS = 0.5
_PAGE_LIMIT_BYTES = 4 << 20
_COUNT = re.compile(r"[0-9]{1,6}")
_RUNNING = re.compile(rb"^vllm:num_requests_running(?:\{[^}\n]*\})? ([0-9.eE+-]{1,32})", re.MULTILINE)


def running_requests(page: bytes) -> float:
    """Running requests that a vLLM metrics page tells, of all its engine cores together."""
    counts = []
    for text in _RUNNING.findall(page):
        try:
            count = float(text)
        except ValueError:
            continue
        counts.append(count if math.isfinite(count) and count > 0 else 0.0)
    return sum(counts)


class EngineLoad:
    """The load of one engine, from its /metrics page. An engine that does not answer runs nothing."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/metrics"

    def step(self, seconds: float) -> Load:
        try:
            with urllib.request.urlopen(self._url, timeout=_PAGE_TIMEOUT_SECONDS) as answer:  # noqa: S310 - base_url
                # A simulated engine says itself what its core runs.
                core = answer.headers.get("x-simulated-core-running", "")
                return Load(int(core) if _COUNT.fullmatch(core) else running_requests(answer.read(_PAGE_LIMIT_BYTES)))
        except (OSError, ValueError, urllib.error.URLError):
            return Load(0, engine_up=False)


def drive(file: StateFile, urls: Sequence[str], seed: int, interval_seconds: float) -> NoReturn:
    """Move the GPUs of a state file until the process ends."""
    loads: list[EngineLoad | Wander]
    machine = file.read()
    models = [GpuModel.of(gpu, random.Random(f"{seed}/{index}")) for index, gpu in enumerate(machine.gpus)]
    if urls:
        loads = [EngineLoad(url) for url in urls]
    else:
        loads = [Wander(random.Random(f"{seed}/load/{index}")) for index in range(len(models))]
    before = time.monotonic()
    while True:
        time.sleep(interval_seconds)
        elapsed_seconds = time.monotonic() - before
        before += elapsed_seconds
        now = [load.step(elapsed_seconds) for load in loads]
        with file.change() as machine:
            for index, (gpu, model) in enumerate(zip(machine.gpus, models, strict=True)):
                model.step(gpu, now[index * len(now) // len(models)], elapsed_seconds)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 ended by Ctrl-C, 2 a state file that cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m simulator.gpu.drive", description=__doc__)
    parser.add_argument("state", type=Path, metavar="STATE")
    parser.add_argument("--gpus", type=whole_number(0, 64), default=8, help="of a machine that is made now")
    parser.add_argument("--name", default="node", help="name of the node, from which UUIDs follow")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine-url", type=base_url, action="append", default=[], metavar="URL")
    parser.add_argument("--interval-seconds", type=number(0.05, 60), default=1.0)
    arguments = parser.parse_args(argv)
    file = StateFile(arguments.state)
    try:
        if not arguments.state.exists():
            file.create(healthy_machine(arguments.gpus, name=arguments.name))
        drive(file, arguments.engine_url, arguments.seed, arguments.interval_seconds)
    except KeyboardInterrupt:
        return 0
    except (OSError, ValueError) as error:
        print(f"simulator.gpu.drive: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
