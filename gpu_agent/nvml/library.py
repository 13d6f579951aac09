"""NVML through nvidia-ml-py."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import sys
from types import ModuleType
from typing import Any

from gpu_agent.nvml.calls import field_calls, part_calls
from gpu_agent.nvml.fields import Poll
from gpu_agent.nvml.parts.processes import processes
from gpu_agent.nvml.parts.topology import topology
from gpu_agent.nvml.parts.values import NOT_AVAILABLE
from gpu_agent.nvml.source import (
    FieldValue,
    Identity,
    Missing,
    Part,
    Process,
    Source,
    Unreadable,
    Unusable,
    cuda_version,
)

# A simulated library says so in its driver version.
_SIMULATED_SUFFIX = "-simulated"
_LIBRARY_FINDER = "ctypes.util"
# Instance of an event that is about no MIG instance.
_WHOLE_GPU = 0xFFFFFFFF


class NvmlLibrary:
    """NVML, opened by this process. It is never closed: the process ends instead."""

    kind: Source

    def __init__(self, library_path: str) -> None:
        """`library_path`: another libnvidia-ml.so.1 than the loader finds; empty: that one.

        Raises: Unusable.
        """
        try:
            pynvml = _import_pynvml()
        except ImportError as error:
            raise Unusable("the nvidia-ml-py package is not installed", absent=True) from error
        self._nvml = pynvml
        if library_path:
            try:
                # pynvml asks the loader for "libnvidia-ml.so.1", and is given the one of that soname that is loaded.
                ctypes.CDLL(library_path, mode=ctypes.RTLD_GLOBAL)
            except OSError as error:
                raise Unusable(f"the NVML library cannot be loaded: {error}") from error
        try:
            pynvml.nvmlInit()
            self.driver_version = str(pynvml.nvmlSystemGetDriverVersion())
            self.count = int(pynvml.nvmlDeviceGetCount())
            self._event_set = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError as error:
            absent = error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
            raise Unusable(f"no NVML library: {error}" if absent else str(error), absent=absent) from error
        self.cuda_version = cuda_version(self._cuda_number())
        self.kind = "simulated" if self.driver_version.endswith(_SIMULATED_SUFFIX) else "nvml"
        self._field_calls = field_calls(pynvml)
        # Of each GPU on its own: GPM keeps samples.
        self._part_calls = [part_calls(pynvml, self.driver_version) for _ in range(self.count)]
        # Event data names a GPU by its handle.
        self._index_of: dict[int, int] = {}

    def _cuda_number(self) -> int:
        """0 where it is not told: the first call asks the CUDA library, and fails where that is not to be found."""
        for call in (self._nvml.nvmlSystemGetCudaDriverVersion_v2, self._nvml.nvmlSystemGetCudaDriverVersion):
            with contextlib.suppress(self._nvml.NVMLError):
                return int(call())
        return 0

    def identify(self, index: int) -> Identity:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            return {
                "index": index,
                "uuid": str(nvml.nvmlDeviceGetUUID(handle)),
                "name": str(nvml.nvmlDeviceGetName(handle)),
                "pci_bus_id": str(nvml.nvmlDeviceGetPciInfo(handle).busId),
                "minor": int(nvml.nvmlDeviceGetMinorNumber(handle)),
            }
        except nvml.NVMLError as error:
            raise Unreadable(str(error)) from error

    def read(self, index: int, poll: Poll) -> dict[str, FieldValue]:
        nvml = self._nvml
        fields: dict[str, FieldValue] = {}
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:
            missing = self._missing(error)
            return {name: missing for names, _ in self._field_calls[poll] for name in names}
        for names, call in self._field_calls[poll]:
            try:
                values: list[FieldValue] = [value if value < NOT_AVAILABLE else "unsupported" for value in call(handle)]
                fields |= zip(names, values, strict=True)
            except nvml.NVMLError as error:
                fields |= dict.fromkeys(names, self._missing(error))
        return fields

    def parts(self, index: int, poll: Poll) -> list[Part]:
        found: list[Part] = []
        with contextlib.suppress(self._nvml.NVMLError):
            handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
            for call in self._part_calls[index][poll]:
                with contextlib.suppress(self._nvml.NVMLError):
                    found += call(handle)
        return found

    def processes(self, index: int) -> list[Process]:
        with contextlib.suppress(self._nvml.NVMLError):
            return processes(self._nvml, self._nvml.nvmlDeviceGetHandleByIndex(index))
        return []

    def topology(self, index: int) -> list[Part]:
        with contextlib.suppress(self._nvml.NVMLError):
            return topology(self._nvml, index)
        return []

    def watch(self, index: int) -> None:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            self._index_of[ctypes.addressof(handle.contents)] = index
            nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._event_set)
        except nvml.NVMLError as error:
            raise Unreadable(str(error)) from error

    def next_xid(self, timeout_seconds: float) -> tuple[int, int, int | None] | None:
        nvml = self._nvml
        try:
            data = nvml.nvmlEventSetWait_v2(self._event_set, int(timeout_seconds * 1000))
        except nvml.NVMLError_Timeout:
            return None
        except nvml.NVMLError as error:
            raise Unreadable(str(error)) from error
        index = self._index_of.get(ctypes.addressof(data.device.contents))
        if index is None or data.eventType != nvml.nvmlEventTypeXidCriticalError:
            return None
        instance = int(data.gpuInstanceId)
        return index, int(data.eventData), None if instance == _WHOLE_GPU else instance

    def _missing(self, error: Exception) -> Missing:
        nvml = self._nvml
        if isinstance(error, nvml.NVMLError_NotSupported | nvml.NVMLError_FunctionNotFound):
            return "unsupported"
        return "lost" if isinstance(error, nvml.NVMLError_GpuIsLost) else "error"


def _import_pynvml() -> Any:
    """nvidia-ml-py, which has no types.

    It imports find_library and never calls it, and with that come subprocess, tempfile and others: 2 MB on every node.
    """
    late: Any = ModuleType(_LIBRARY_FINDER)
    late.find_library = lambda name: importlib.import_module(_LIBRARY_FINDER).find_library(name)
    if sys.modules.setdefault(_LIBRARY_FINDER, late) is not late:
        return importlib.import_module("pynvml")
    try:
        return importlib.import_module("pynvml")
    finally:
        del sys.modules[_LIBRARY_FINDER]
