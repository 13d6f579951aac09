"""The node as a whole: files, ports, load, processors, memory. Source: proc(5). What cannot be read is absent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from gpu_agent.samples import Sample

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_NO_LIMIT = 2**63 - 1
_MEMORY = {
    "MemTotal": "memory_bytes",
    "MemAvailable": "memory_available_bytes",
    "SwapTotal": "swap_bytes",
    "SwapFree": "swap_free_bytes",
}


def ephemeral_range(proc: Path) -> range:
    """The local ports that outgoing connections get; empty where it is not told."""
    try:
        first, last = (proc / "sys/net/ipv4/ip_local_port_range").read_text().split()
    except (OSError, ValueError):
        return range(0)
    return range(int(first), int(last) + 1)


def system_samples(proc: Path) -> list[Sample]:
    found: list[Sample] = []
    for read in (_files, _load, _processors, _memory, _oom_kills):
        try:
            found += read(proc)
        except (OSError, ValueError, IndexError):
            # An older kernel, or a /proc that hides it.
            continue
    return found


def _files(proc: Path) -> Iterator[Sample]:
    used, _, limit = (int(field) for field in (proc / "sys/fs/file-nr").read_text().split())
    yield _sample("file_descriptors_used", used)
    if limit < _NO_LIMIT:
        yield _sample("file_descriptors_limit", limit)


def _load(proc: Path) -> Iterator[Sample]:
    yield _sample("load1", float((proc / "loadavg").read_text().split()[0]))


def _processors(proc: Path) -> Iterator[Sample]:
    lines = (proc / "stat").read_text().splitlines()
    for mode, ticks in zip(_MODES, lines[0].split()[1:], strict=False):
        yield _sample("cpu_seconds_total", int(ticks) / _TICKS_PER_SECOND, {"mode": mode})
    yield _sample("cpus", sum(line.startswith("cpu") for line in lines[1:]))


def _memory(proc: Path) -> Iterator[Sample]:
    for line in (proc / "meminfo").read_text().splitlines():
        field, _, kilobytes = line.partition(":")
        if name := _MEMORY.get(field):
            yield _sample(name, int(kilobytes.split()[0]) * 1024)


def _oom_kills(proc: Path) -> Iterator[Sample]:
    for line in (proc / "vmstat").read_text().splitlines():
        if line.startswith("oom_kill "):
            yield _sample("oom_kills_total", int(line.split()[1]))


def _sample(name: str, value: float, labels: dict[str, str] | None = None) -> Sample:
    return Sample(f"headworks_host_{name}", labels or {}, float(value), 0)
