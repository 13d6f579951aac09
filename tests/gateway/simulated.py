"""A simulated engine as a process, for tests that need answers of every API."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.services import Process

SERVED = "served-8b"


@contextmanager
def simulated_engine(folder: Path, *options: str) -> Iterator[str]:
    """The URL of an engine that serves `SERVED` and answers at once."""
    log = folder / "engine.log"
    argv = [sys.executable, "-m", "simulator.engine", "--port", "0", "--model", SERVED, "--speed", "instant", *options]
    with Process(argv, log=log) as process:
        yield process.wait_until(lambda: re.findall(r"http://\S+", log.read_text()), "the engine's address")[0]
