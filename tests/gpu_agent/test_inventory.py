from __future__ import annotations

import asyncio

from gpu_agent.inventory import Inventory, InventoryReader
from wire.messages import GpuReport

NO_LIBRARY = "NVML Shared Library Not Found"


async def test_a_node_without_nvml_says_so(monkeypatch, tmp_path):
    # A broken library of that name in front, so that the test means the same on a machine with GPUs.
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert await InventoryReader(timeout_seconds=30).read() == Inventory(problems=[NO_LIBRARY])


async def test_gpus_are_read_and_a_lost_one_does_not_hide_the_others(monkeypatch, fake_nvml_dir):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fake_nvml_dir))
    assert await InventoryReader(timeout_seconds=30).read() == Inventory(
        [
            GpuReport("GPU-0", 0, "NVIDIA H200", memory_bytes=150_754_820_096, pci_bus_id="00000000:01:00.0"),
            GpuReport("GPU-1", 1, "NVIDIA H200", pci_bus_id="00000000:02:00.0"),
        ],
        "nvml",
        "580.95.05",
        ["GPU 2: GPU is lost"],
    )


async def test_a_driver_that_does_not_fit_its_library_is_named(monkeypatch, fake_nvml_dir):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fake_nvml_dir))
    monkeypatch.setenv("FAKE_NVML", "broken")
    inventory = await InventoryReader(timeout_seconds=30).read()
    assert inventory == Inventory(problems=["RM has detected an NVML/RM version mismatch."])


async def test_a_hung_nvml_is_unresponsive_and_the_reader_goes_on(monkeypatch, fake_nvml_dir):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fake_nvml_dir))
    monkeypatch.setenv("FAKE_NVML", "hang")
    reader = InventoryReader(timeout_seconds=3)
    assert await reader.read() == Inventory(problems=["NVML is unresponsive"])
    monkeypatch.delenv("FAKE_NVML")
    # The hung child is killed, not waited for; until it is gone no second one is started.
    async with asyncio.timeout(30):
        while (await reader.read()).source != "nvml":  # noqa: ASYNC110 - a killed child has no event
            await asyncio.sleep(0.01)


async def test_an_nvml_that_crashes_takes_only_its_child_along(monkeypatch, fake_nvml_dir):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fake_nvml_dir))
    monkeypatch.setenv("FAKE_NVML", "crash")
    inventory = await InventoryReader(timeout_seconds=30).read()
    assert inventory == Inventory(problems=["reading NVML ended with exit status -6"])
