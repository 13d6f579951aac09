from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_agent.nvml.dcgm_exporter import completed, profiling
from gpu_agent.nvml.fields import PARTS
from gpu_agent.nvml.metrics import samples
from gpu_agent.nvml.readings import GpuIdentity, GpuReading, GpuReadings, Part
from gpu_agent.nvml.xids import XID_RULES
from tests.gpu_agent.fake_engine import fake_engine
from tests.gpu_agent.nvml.polling import read_until

LABELS = 'gpu="0",UUID="{uuid}",pci_bus_id="00000000:01:00.0",device="nvidia0",modelName="NVIDIA A100",Hostname="n"'
A100 = LABELS.format(uuid="GPU-1")
PAGE = (
    "# HELP DCGM_FI_PROF_GR_ENGINE_ACTIVE Ratio of time the graphics engine is active.\n"
    "# TYPE DCGM_FI_PROF_GR_ENGINE_ACTIVE gauge\n"
    f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{A100}}} 0.9\n"
    f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{{A100}}} 0.5\n"
    f"DCGM_FI_PROF_DRAM_ACTIVE{{{A100}}} 2.5e-1\n"
    f"DCGM_FI_PROF_PCIE_TX_BYTES{{{A100}}} 1048576\n"
    f"DCGM_FI_PROF_PCIE_RX_BYTES{{{A100}}} 2097152\n"
    f"DCGM_FI_DEV_GPU_UTIL{{{A100}}} 97\n"
)
FOUND: dict[str, list[Part]] = {
    "GPU-1": [
        ("gr_engine_active_ratio", [], 0.9),
        ("tensor_active_ratio", [], 0.5),
        ("dram_active_ratio", [], 0.25),
        ("pcie_tx_bytes_per_second", [], 1048576),
        ("pcie_rx_bytes_per_second", [], 2097152),
    ]
}


def test_profiling_metrics_are_known_by_their_gpu():
    assert profiling(PAGE.encode()) == FOUND
    assert {name for name, _, _ in FOUND["GPU-1"]} < PARTS.keys()


def test_names_of_newer_versions_say_the_same():
    page = (
        PAGE.replace("GR_ENGINE_ACTIVE", "GR_ENGINE_UTIL_RATIO")
        .replace("PIPE_TENSOR_ACTIVE", "TENSOR_UTIL_RATIO")
        .replace("DRAM_ACTIVE", "DRAM_UTIL_RATIO")
    )
    assert profiling(page.encode()) == FOUND


@pytest.mark.parametrize(
    "line",
    [
        f'DCGM_FI_PROF_DRAM_ACTIVE{{{A100},GPU_I_PROFILE="1g.5gb",GPU_I_ID="3"}} 0.5',
        f"DCGM_FI_PROF_DRAM_ACTIVE{{{A100}}} NaN",
        f"DCGM_FI_PROF_DRAM_ACTIVE{{{A100}}} -1",
        f"DCGM_FI_PROF_DRAM_ACTIVE{{{A100}}} 1e999",
        f"DCGM_FI_PROF_DRAM_ACTIVE{{{A100}}} 1.2.3",
        f"DCGM_FI_PROF_SM_ACTIVE{{{A100}}} 0.5",
        'DCGM_FI_PROF_DRAM_ACTIVE{gpu="0"} 0.5',
        "DCGM_FI_PROF_DRAM_ACTIVE 0.5",
    ],
    ids=["MIG instance", "NaN", "negative", "infinite", "no number", "another metric", "no GPU", "no labels"],
)
def test_what_is_no_number_of_a_whole_gpu_is_passed_over(line):
    assert profiling(f"{line}\n".encode()) == {}


@given(st.lists(st.one_of(st.binary(max_size=80), st.sampled_from(PAGE.encode().splitlines())), max_size=20))
def test_whatever_a_page_holds_gives_numbers_or_none(lines):
    for parts in profiling(b"\n".join(lines)).values():
        assert all(name in PARTS and labels == [] and number >= 0 for name, labels, number in parts)


def gpu(**given):
    return GpuReading(GpuIdentity(0, "GPU-1", "NVIDIA A100"), **{"state": "ok", **given})


def test_a_gpu_of_which_nvml_tells_none_is_completed_under_its_own_labels():
    readings = completed(GpuReadings(gpus=[gpu(parts=[("mig_instances", [], 0)])]), FOUND)
    assert readings.gpus[0].parts == [("mig_instances", [], 0), *FOUND["GPU-1"]]
    told = samples(readings, hostname="gpu-01", rules=XID_RULES, engine_of=lambda pid: None)
    values = {sample.name: sample.value for sample in told if sample.labels["Hostname"] == "gpu-01"}
    assert values["DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"] == 0.5
    assert values["DCGM_FI_PROF_PCIE_RX_BYTES"] == 2097152


@pytest.mark.parametrize(
    "reading",
    [
        gpu(parts=[("dram_active_ratio", [], 0.1)]),
        gpu(state="unresponsive"),
        gpu(released=True),
        GpuReading(GpuIdentity(0, "GPU-2"), "ok"),
    ],
    ids=["NVML tells itself", "it does not answer", "released", "not on the page"],
)
def test_no_other_gpu_is(reading):
    assert completed(GpuReadings(gpus=[reading]), FOUND).gpus == [reading]


async def test_an_exporter_is_read_again_and_again_and_one_that_goes_leaves_no_number(collect, state, source_options):
    with state.change() as machine:
        for name in [
            each for each in machine.gpus[0].values if "_per_mille" in each or "_mebibytes_per_second" in each
        ]:
            machine.gpus[0].values[name] = "unsupported"
        uuid = machine.gpus[0].uuid
    async with fake_engine() as exporter:
        exporter.pages = {"/metrics": (200, PAGE.replace("GPU-1", uuid).encode())}
        watched = await collect(dcgm_exporter_url=f"{exporter.url}/metrics", **source_options)

        def told(now):
            return [number for name, _, number in now.gpus[0].parts if name == "tensor_active_ratio"]

        readings = await read_until(watched, lambda now: told(now) == [0.5], "the exporter's numbers")
        assert not any("dcgm-exporter" in problem for problem in readings.problems)
        exporter.pages = {"/metrics": (500, b"")}
        readings = await read_until(watched, lambda now: not told(now), "their end")
        assert any("dcgm-exporter" in problem and "answered 500" in problem for problem in readings.problems)
