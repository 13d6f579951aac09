"""What this process holds of the machine: open files, which end before anything else where streams are many, and time.

Source: seed 1, sections 15 and 16.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

_FILES = Path("/proc/self/fd")


class ProcessMoment(NamedTuple):
    """`open_fds`: None where the system does not tell. `fd_limit`: None where there is none."""

    open_fds: int | None
    fd_limit: int | None
    cpu_seconds: float


def own_process(files: Path = _FILES) -> ProcessMoment:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = None if soft == resource.RLIM_INFINITY else soft
    return ProcessMoment(_open_fds(files), limit, used.ru_utime + used.ru_stime)


def process_families(process: ProcessMoment) -> Iterator[Metric]:
    """What is not known has no sample."""
    for name, text, value in (
        ("open_fds", "Open file descriptors of the gateway's process.", process.open_fds),
        ("fd_limit", "How many file descriptors the gateway's process may have open.", process.fd_limit),
    ):
        family = GaugeMetricFamily(f"headworks_gateway_{name}", text, labels=[])
        if value is not None:
            family.add_metric([], value)
        yield family
    yield CounterMetricFamily(
        "headworks_gateway_cpu_seconds", "Processor time of the gateway's process.", process.cpu_seconds
    )


def _open_fds(files: Path) -> int | None:
    """Since Linux 6.2 the folder's size is their number; before that they are listed, some microseconds each."""
    try:
        return files.stat().st_size or len(os.listdir(files))
    except OSError:
        return None
