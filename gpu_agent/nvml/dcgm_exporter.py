"""Profiling metrics of GPUs before Hopper, which NVML does not give: from a dcgm-exporter that runs on the node."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import NoReturn

import msgspec

from gpu_agent.engines.pages import EnginePages, PageUnavailable
from gpu_agent.nvml.readings import GpuReading, GpuReadings, Part
from wire.engine_pages.numbers import LABEL

log = logging.getLogger("headworks.agent.nvml")
_ANSWER_SECONDS = 5.0
# 64 GPUs with all fields of DCGM are 2 MiB.
_PAGE_LIMIT_BYTES = 4 << 20
# Ratios and bytes a second under all of them. The second of two names is DCGM's since 4.6.
_NAMES = {
    b"DCGM_FI_PROF_GR_ENGINE_ACTIVE": "gr_engine_active_ratio",
    b"DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": "gr_engine_active_ratio",
    b"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "tensor_active_ratio",
    b"DCGM_FI_PROF_TENSOR_UTIL_RATIO": "tensor_active_ratio",
    b"DCGM_FI_PROF_DRAM_ACTIVE": "dram_active_ratio",
    b"DCGM_FI_PROF_DRAM_UTIL_RATIO": "dram_active_ratio",
    b"DCGM_FI_PROF_PCIE_TX_BYTES": "pcie_tx_bytes_per_second",
    b"DCGM_FI_PROF_PCIE_RX_BYTES": "pcie_rx_bytes_per_second",
}
_PROFILING = frozenset(_NAMES.values())
_LINE = re.compile(rb"^(DCGM_FI_PROF_[A-Z_]++)\{([^\n]*)\} ([0-9.eE+-]+)", re.MULTILINE)
# Of a MIG instance, whose GPU has no such number itself.
_INSTANCE = b"GPU_I_ID"


def profiling(page: bytes) -> dict[str, list[Part]]:
    """What a dcgm-exporter's page says, by GPU's UUID. What cannot be a number of a whole GPU is passed over."""
    found: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for name, text, number in _LINE.findall(page):
        labels = dict(LABEL.findall(text))
        part = _NAMES.get(name)
        with contextlib.suppress(ValueError):
            value = float(number)
            if part and labels.get(b"UUID") and not labels.get(_INSTANCE) and math.isfinite(value) and value >= 0:
                found[labels[b"UUID"].decode("utf-8", "replace")][part] = value
    return {uuid: [(part, [], value) for part, value in values.items()] for uuid, values in found.items()}


def completed(readings: GpuReadings, found: Mapping[str, list[Part]]) -> GpuReadings:
    """The readings with what was found of GPUs that answer, and of which NVML itself tells no such thing."""
    return msgspec.structs.replace(readings, gpus=[_completed(gpu, found) for gpu in readings.gpus])


def _completed(gpu: GpuReading, found: Mapping[str, list[Part]]) -> GpuReading:
    own = any(name in _PROFILING for name, _, _ in gpu.parts)
    more = [] if own or gpu.state != "ok" or gpu.released else found.get(gpu.identity.uuid, [])
    return msgspec.structs.replace(gpu, parts=[*gpu.parts, *more]) if more else gpu


class DcgmExporter:
    """Reads the page at `url` every so often. `found`: by GPU's UUID, what it says now; `problem`: why it does not."""

    def __init__(self, url: str, interval_seconds: float) -> None:
        self._url, self._interval_seconds = url, interval_seconds
        self.found: Mapping[str, list[Part]] = {}
        self.problem = ""
        self._task: asyncio.Task[NoReturn] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def complete(self, readings: GpuReadings) -> GpuReadings:
        return completed(readings, self.found)

    async def _run(self) -> NoReturn:
        pages = EnginePages(timeout_seconds=_ANSWER_SECONDS, limit_bytes=_PAGE_LIMIT_BYTES)
        try:
            while True:
                await self._read(pages)
                await asyncio.sleep(self._interval_seconds)
        finally:
            await pages.close()

    async def _read(self, pages: EnginePages) -> None:
        try:
            self.found = profiling(await pages.read(self._url, pages.deadline()))
            problem = (
                "" if self.found else "its page has no profiling metrics of a GPU: name them in its list of counters"
            )
        except PageUnavailable as error:
            self.found, problem = {}, str(error)
        except Exception as error:
            # Whatever it answers, it is read on.
            log.exception("the page of dcgm-exporter failed")
            self.found, problem = {}, f"the agent failed to read it: {type(error).__name__}"
        problem = f"dcgm-exporter at {self._url}: {problem}" if problem else ""
        if problem and problem != self.problem:
            log.warning("%s", problem)
        self.problem = problem
