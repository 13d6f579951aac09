"""Which GPUs a node has, as NVML says. `python -m gpu_agent.inventory` prints it as JSON.

NVML is only ever opened in a child process with a deadline: a hung GPU leaves its caller stuck in the kernel, and an
open NVML client blocks GPU resets.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import sys
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from wire.messages import UNREADABLE, GpuReport

log = logging.getLogger("headworks.agent")
T = TypeVar("T")


class Inventory(Struct, frozen=True, omit_defaults=True):
    """The GPUs that answered. `problems` names those that did not, or why NVML gives none at all."""

    gpus: list[GpuReport] = []
    source: Literal["nvml", "none"] = "none"
    driver_version: str | UnsetType = UNSET
    problems: list[str] = []


def read_inventory() -> Inventory:
    """Ask NVML, in this process. A node without NVML has an inventory with source `none`."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return Inventory(problems=["the nvidia-ml-py package is not installed"])
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Inventory(problems=[str(error)])
    try:
        gpus: list[GpuReport] = []
        problems: list[str] = []
        for index in range(nvml.nvmlDeviceGetCount()):
            # One lost GPU must not hide the others.
            try:
                gpus.append(_gpu(nvml, index))
            except nvml.NVMLError as error:
                problems.append(f"GPU {index}: {error}")
        return Inventory(gpus, "nvml", _supported(nvml, nvml.nvmlSystemGetDriverVersion), problems)
    except nvml.NVMLError as error:
        return Inventory(problems=[str(error)])
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> GpuReport:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    return GpuReport(
        uuid=nvml.nvmlDeviceGetUUID(handle),
        index=index,
        model=nvml.nvmlDeviceGetName(handle),
        memory_bytes=_supported(nvml, lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total)),
        pci_bus_id=_supported(nvml, lambda: str(nvml.nvmlDeviceGetPciInfo(handle).busId)),
    )


def _supported(nvml: Any, read: Callable[[], T]) -> T | UnsetType:
    """A value, or absent where this GPU or driver has none (GB10 has no memory information)."""
    try:
        return read()
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
        return UNSET


class InventoryReader:
    """Reads the inventory in child processes, one at a time."""

    def __init__(self, *, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._child: asyncio.subprocess.Process | None = None

    async def read(self) -> Inventory:
        """The inventory; source `none` with the reason when NVML does not answer in time."""
        if self._child is not None and self._child.returncode is None:
            # Stuck in the kernel since an earlier reading, where not even SIGKILL reaches it.
            return Inventory(problems=["NVML is unresponsive"])
        self._child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", __name__,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            async with asyncio.timeout(self._timeout_seconds):
                answer, _ = await self._child.communicate()
                return msgspec.json.decode(answer, type=Inventory)
        except TimeoutError:
            return Inventory(problems=["NVML is unresponsive"])
        except UNREADABLE:
            return Inventory(problems=[f"reading NVML ended with exit status {self._child.returncode}"])
        finally:
            if self._child.returncode is None:
                self._child.kill()


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(read_inventory()))
