from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

WRITER = Path(__file__).with_name("writer.py")


class Vllm:
    """Processes that write metrics into one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, engine: str = "0", requests: int = 2) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, WRITER, engine, str(requests)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(self.folder)},
        )
        self._processes.append(process)
        assert process.stdout is not None
        assert int(process.stdout.readline()) == process.pid
        return process

    def stop(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def vllm(tmp_path: Path) -> Iterator[Vllm]:
    made = Vllm(tmp_path / "vllm-metrics")
    yield made
    made.stop()
