"""What the agent itself holds and costs, as metrics."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from gpu_agent.nvml.readings import Source
from gpu_agent.samples import Sample
from wire.spool import Spool

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """Of one process: memory that it holds, shared pages in full, and processor time since its start."""

    resident_bytes: int
    cpu_seconds: float


def usage_of(pid: int) -> Usage | None:
    """None where the process is gone. Source: proc(5)."""
    try:
        statm = Path(f"/proc/{pid}/statm").read_bytes().split()
        # The command's name stands in parentheses and may hold anything.
        stat = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return Usage(int(statm[1]) * _PAGE_BYTES, (int(stat[11]) + int(stat[12])) / _TICKS_PER_SECOND)


def own_samples(
    *,
    gpu_source: Source | None,
    xid_sources: Collection[str],
    processes: Mapping[str, int],
    spools: Mapping[str, Spool],
) -> list[Sample]:
    """The agent's own metrics. `gpu_source`: None until it is known. `processes`: process ids by role."""
    found = [Sample("headworks_agent_up", {}, 1.0, 0)]
    if gpu_source:
        found.append(Sample("headworks_agent_gpu_source_info", {"source": gpu_source}, 1.0, 0))
    found += [Sample("headworks_agent_xid_source_info", {"source": source}, 1.0, 0) for source in xid_sources]
    for role, pid in processes.items():
        if usage := usage_of(pid):
            labels = {"process": role}
            found.append(Sample("headworks_agent_resident_bytes", labels, float(usage.resident_bytes), 0))
            found.append(Sample("headworks_agent_cpu_seconds_total", labels, usage.cpu_seconds, 0))
    for name, spool in spools.items():
        labels = {"spool": name}
        found.append(Sample("headworks_agent_spool_waiting_records", labels, float(spool.waiting), 0))
        found.append(Sample("headworks_agent_spool_dropped_records_total", labels, float(spool.dropped), 0))
    return found
