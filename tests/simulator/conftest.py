"""Engines as real processes on loopback."""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.services import Process, wait_for

MODEL = "simulated"


@dataclass
class Engine:
    """One running engine and where it listens."""

    process: Process
    url: str

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def sample(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that carry `labels`."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=5) as answer:
            page = answer.read().decode()
        return sum(
            sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def wait_for_sample(self, name: str, value: float) -> None:
        wait_for(lambda: self.sample(name) == value, 10, f"{name} to become {value:g}", poll_s=0.01)

    def set_fault(self, **fault: Any) -> None:
        request = urllib.request.Request(f"{self.url}/simulator/fault", json.dumps(fault).encode())
        urllib.request.urlopen(request, timeout=5).close()


StartEngine = Callable[..., Engine]


@pytest.fixture
def start_engine(tmp_path: Path) -> Iterator[StartEngine]:
    """`start_engine("--speed", "5")` starts one more engine; all end with the test."""
    with ExitStack() as engines:

        def start(*options: str) -> Engine:
            log = tmp_path / f"engine-{len(list(tmp_path.iterdir()))}.log"
            argv = [sys.executable, "-m", "simulator.engine", "--port", "0", "--model", MODEL, *options]
            process = engines.enter_context(Process(argv, log=log))
            urls = process.wait_until(lambda: re.findall(r"http://\S+", log.read_text()), "the engine's address")
            return Engine(process, urls[0])

        yield start
