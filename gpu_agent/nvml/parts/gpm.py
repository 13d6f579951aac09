"""GPM, NVML's profiling metrics: Hopper and later."""

from __future__ import annotations

import math
import time
from typing import Any

from gpu_agent.nvml.source import Part

# NVML wants its two samples further apart than this.
_SHORTEST_SECONDS = 0.1
_PERCENT, _MEBIBYTE = 0.01, 2.0**20
# Each metric's number, what makes NVML's unit ours, and the most that it can be.
_METRICS = {
    "gr_engine_active_ratio": (1, _PERCENT, 1.0),
    "tensor_active_ratio": (5, _PERCENT, 1.0),
    "dram_active_ratio": (10, _PERCENT, 1.0),
    "pcie_tx_bytes_per_second": (20, _MEBIBYTE, math.inf),
    "pcie_rx_bytes_per_second": (21, _MEBIBYTE, math.inf),
}


class Gpm:
    """One GPU's metrics, each over the time between the last two readings. Of one thread."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        # The earlier sample, and the one that the next reading overwrites; both NVML's memory.
        self._samples: tuple[Any, Any] | None = None
        self._sampled_at: float | None = None
        self._parts: list[Part] = []

    def read(self, handle: Any) -> list[Part]:
        """Nothing at the first reading, and on a GPU that has no GPM, or not in MIG mode. Raises: NVMLError."""
        now = time.monotonic()
        if self._sampled_at is not None and now - self._sampled_at < _SHORTEST_SECONDS:
            return self._parts
        samples = self._samples or self._allocate(handle)
        if samples is None:
            return []
        earlier, later = self._samples = samples
        try:
            self._nvml.nvmlGpmSampleGet(handle, later)
            self._parts = [] if self._sampled_at is None else self._between(earlier, later)
        except self._nvml.NVMLError:
            self._free()
            raise
        self._samples, self._sampled_at = (later, earlier), now
        return self._parts

    def _allocate(self, handle: Any) -> tuple[Any, Any] | None:
        nvml = self._nvml
        if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            return None
        first = nvml.nvmlGpmSampleAlloc()
        try:
            return first, nvml.nvmlGpmSampleAlloc()
        except nvml.NVMLError:
            nvml.nvmlGpmSampleFree(first)
            raise

    def _free(self) -> None:
        """After an error: what a GPU said before, say, MIG was switched on goes with nothing that it says now."""
        for sample in self._samples or ():
            self._nvml.nvmlGpmSampleFree(sample)
        self._samples, self._sampled_at, self._parts = None, None, []

    def _between(self, earlier: Any, later: Any) -> list[Part]:
        nvml = self._nvml
        asked = nvml.c_nvmlGpmMetricsGet_t(
            version=nvml.NVML_GPM_METRICS_GET_VERSION, numMetrics=len(_METRICS), sample1=earlier, sample2=later
        )
        for place, (number, _, _) in enumerate(_METRICS.values()):
            asked.metrics[place].metricId = number
        nvml.nvmlGpmMetricsGet(asked)
        told = zip(_METRICS.items(), asked.metrics, strict=False)
        return [
            (name, [], min(answer.value * factor, most))
            for (name, (_, factor, most)), answer in told
            if answer.nvmlReturn == nvml.NVML_SUCCESS and math.isfinite(answer.value) and answer.value >= 0
        ]
