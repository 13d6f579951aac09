"""How long the phases of an engine's start took, of which versions it is, and how its run before ended.

Pure, but for the end of a log file that it reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from gpu_agent.engines.memory_exit import MemoryExit, last_memory_exit
from wire.engine_pages.numbers import labels
from wire.engine_pages.scan import OwnLine

# A busy server writes a line a request: enough for some 20,000 of them since its start.
_TAIL_BYTES = 4 * 2**20
_PHASES_LIMIT = 32
# Longest start that is one.
_LONGEST_SECONDS = 7 * 86_400
_NAME = re.compile("[a-z][a-z0-9_]{0,63}")
# Where a start begins in vLLM's log, versions 0.6 to 0.32.
_BEGINNING = re.compile(rb"non-default args: |vLLM API server version ")
# Source: vllm/v1/engine/core.py, vllm/v1/worker/gpu_model_runner.py, vllm/compilation/monitor.py and what they were.
_SECONDS = rb"([0-9]+(?:\.[0-9]+)?)"
_VLLM_PHASES = {
    "load_weights": re.compile(rb"Loading weights took " + _SECONDS + rb" seconds"),
    "load_model": re.compile(rb"Model loading took [^\n]*? and " + _SECONDS + rb" seconds"),
    "torch_compile": re.compile(rb"torch\.compile (?:takes|took) " + _SECONDS + rb" s in total"),
    "capture_graphs": re.compile(rb"Graph capturing finished in " + _SECONDS + rb" secs"),
    "init_engine": re.compile(rb"init engine \([^\n]*?\) took " + _SECONDS + rb" s"),
}
# What the servers write at their start: vLLM in vllm/v1/engine/core.py, NVIDIA's containers in their entry point.
_VERSIONS = {
    "vllm": re.compile(rb"(?:LLM engine \(v?|vLLM API server version )([0-9][0-9A-Za-z.+!_-]{0,99})"),
    "triton_release": re.compile(rb"NVIDIA Release ([0-9]{2}\.[0-9]{2})"),
}
# Gauges of SGLang's: a phase by its label, or one that is named here.
SGLANG_METRICS = {
    "sglang:startup_time_seconds": "",
    "sglang:startup_cuda_graph_time_seconds": "capture_graphs_",
    "sglang:engine_load_weights_time": "load_weights",
    "sglang:engine_startup_time": "total",
}


class StartLog(NamedTuple):
    """Milliseconds by phase, and versions by what they are of.

    `began`: whether a start is in the text at all. `memory_exit`: how the run before it ended for want of GPU memory.
    """

    phases_ms: dict[str, int]
    versions: dict[str, str]
    began: bool = False
    memory_exit: MemoryExit | None = None


def read_log(file: Path) -> StartLog:
    """What the end of vLLM's log, or of Triton's with vLLM in it, tells of the last start. Raises: OSError."""
    with file.open("rb") as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL_BYTES))
        text = log.read(_TAIL_BYTES)
    failed = last_memory_exit(text)
    is_of_run_before = failed is not None and _starts(text[failed.at :]) == 1
    return StartLog(of_log(text), versions_of_log(text), _starts(text) > 0, failed if is_of_run_before else None)


def _starts(text: bytes) -> int:
    """How many begin in the text; a version may tell of each in two lines."""
    found = [match[0] for match in _BEGINNING.finditer(text)]
    return max((found.count(line) for line in set(found)), default=0)


def versions_of_log(text: bytes) -> dict[str, str]:
    """The last that is told of each."""
    told = ((of, line.findall(text)) for of, line in _VERSIONS.items())
    return {of: found[-1].decode() for of, found in told if found}


def of_log(text: bytes) -> dict[str, int]:
    """Milliseconds by phase of the last start in the text. Workers that do the same at once count as the slowest."""
    beginning = 0
    for match in _BEGINNING.finditer(text):
        beginning = match.end()
    # By place, not in a copy: the text is long.
    took = ((phase, _milliseconds(map(float, line.findall(text, beginning)))) for phase, line in _VLLM_PHASES.items())
    return {phase: milliseconds for phase, milliseconds in took if milliseconds is not None}


def of_sglang(lines: Iterable[OwnLine]) -> dict[str, int]:
    """Milliseconds by phase as SGLang's page gives them, of ranks the slowest."""
    found: dict[str, list[float]] = {}
    for line in lines:
        name = SGLANG_METRICS.get(line.name)
        if name is None:
            continue
        phase = name if name and not name.endswith("_") else name + labels(line.labels).get("phase", "")
        if _NAME.fullmatch(phase):
            found.setdefault(phase, []).append(line.value)
    took = ((phase, _milliseconds(seconds)) for phase, seconds in sorted(found.items())[:_PHASES_LIMIT])
    return {phase: milliseconds for phase, milliseconds in took if milliseconds is not None}


def _milliseconds(seconds: Iterable[float]) -> int | None:
    possible = [each for each in seconds if 0 <= each <= _LONGEST_SECONDS]
    return round(max(possible) * 1000) if possible else None
