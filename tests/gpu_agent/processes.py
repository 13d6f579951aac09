"""The agent as a process of its own, and what the kernel says of it and its children."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.support.memory import children as children
from tests.services import Process


def agent(tmp_path: Path, url: str, *options: str, **environment: str) -> Process:
    """Node node-1, which has no GPUs and no kernel log unless `environment` says so."""
    command = [sys.executable, "-m", "gpu_agent.cli", "--control-url", url, "--name", "node-1"]
    return Process(
        [*command, "--state-dir", str(tmp_path / "state"), *options],
        log=tmp_path / "log",
        environment={
            "HEADWORKS_AGENT_PROBE_INTERVAL_SECONDS": "0.1",
            "HEADWORKS_AGENT_GPU_SOURCE": "none",
            "HEADWORKS_AGENT_KMSG_PATH": str(tmp_path / "no-kmsg"),
            **environment,
        },
    )


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
