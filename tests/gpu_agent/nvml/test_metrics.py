from __future__ import annotations

import pytest

from gpu_agent.nvml.fields import DCGM_COUNTERS, FIELDS, PARTS
from gpu_agent.nvml.metrics import samples
from gpu_agent.nvml.readings import GpuIdentity, GpuReading, GpuReadings, XidTally
from gpu_agent.nvml.xids import XID_RULES
from gpu_agent.samples import Sample

H200 = GpuIdentity(3, "GPU-3", "NVIDIA H200", "00000000:04:00.0", 3)
LABELS = {
    "gpu": "3",
    "UUID": "GPU-3",
    "pci_bus_id": "00000000:04:00.0",
    "device": "nvidia3",
    "modelName": "NVIDIA H200",
    "Hostname": "gpu-01",
    "DCGM_FI_DRIVER_VERSION": "580.95.05",
}


def metrics(reading, **given):
    readings = GpuReadings("nvml", "580.95.05", [reading])
    return list(samples(readings, hostname="gpu-01", rules=XID_RULES, **{"engine_of": lambda pid: None, **given}))


def values(reading):
    return {sample.name: sample.value for sample in metrics(reading)}


@pytest.mark.parametrize(
    ("field", "read", "metric", "value"),
    [
        ("gpu_utilization_percent", 87, "DCGM_FI_DEV_GPU_UTIL", 87),
        ("gpu_utilization_percent", 101, "DCGM_FI_DEV_GPU_UTIL", 100),
        ("memory_used_bytes", 3 * 2**30, "DCGM_FI_DEV_FB_USED", 3072),
        ("power_milliwatts", 512_345, "DCGM_FI_DEV_POWER_USAGE", 512.345),
        ("energy_millijoules", 7_000, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 7_000),
        ("sm_clock_mhz", 1980, "DCGM_FI_DEV_SM_CLOCK", 1980),
        ("ecc_corrected_aggregate_sram_errors", 3, "DCGM_FI_DEV_ECC_SBE_AGG_SRM", 3),
        ("ecc_uncorrected_volatile_device_memory_errors", 4, "DCGM_FI_DEV_ECC_DBE_VOL_DEV", 4),
        ("retired_pages_pending", 1, "DCGM_FI_DEV_RETIRED_PENDING", 1),
        ("power_limit_max_milliwatts", 700_000, "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX", 700),
        ("decoder_utilization_percent", 101, "DCGM_FI_DEV_DEC_UTIL", 100),
        ("thermal_margin_celsius", -3, "DCGM_FI_DEV_GPU_TEMP_LIMIT", -3),
        ("nvlink_replay_errors", 9, "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", 9),
        ("pcie_link_generation_max", 5, "DCGM_FI_DEV_PCIE_MAX_LINK_GEN", 5),
        ("ecc_uncorrected_volatile_errors", 2, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 2),
    ],
)
def test_values_come_in_dcgm_exporters_units(field, read, metric, value):
    assert values(GpuReading(H200, "ok", {field: read}))[metric] == value


@pytest.mark.parametrize("missing", ["unsupported", "lost", "error"])
def test_what_is_not_a_value_has_no_sample(missing):
    found = values(GpuReading(H200, "ok", {"gpu_utilization_percent": missing, "clock_event_reasons": missing}))
    assert found == {"headworks_gpu_up": 1}


def test_a_misread_temperature_has_no_sample():
    assert "DCGM_FI_DEV_MEMORY_TEMP" not in values(GpuReading(H200, "ok", {"memory_temperature_celsius": 511}))


def test_labels_are_dcgm_exporters_in_its_order():
    (up,) = metrics(GpuReading(H200, "ok", at_ms=5))
    assert list(up.labels.items()) == list(LABELS.items())
    assert up.at_ms == 5
    (up,) = metrics(GpuReading(H200, "ok"), hostname_label="hostname")
    assert up.labels["hostname"] == "gpu-01"


def test_a_mig_instance_is_named_between_its_gpu_and_the_host():
    used = GpuReading(H200, "ok", parts=[("mig_memory_used_bytes", ["1g.18gb", "7"], 2**20)])
    (found,) = (sample for sample in metrics(used) if sample.name == "DCGM_FI_DEV_FB_USED")
    assert list(found.labels) == [*list(LABELS)[:5], "GPU_I_PROFILE", "GPU_I_ID", *list(LABELS)[5:]]
    assert (found.labels["GPU_I_PROFILE"], found.labels["GPU_I_ID"], found.value) == ("1g.18gb", "7", 1)


GAUGES = (
    "SM_CLOCK", "MEM_CLOCK", "GPU_TEMP", "MEMORY_TEMP", "POWER_USAGE", "GPU_UTIL", "MEM_COPY_UTIL", "ENC_UTIL",
    "DEC_UTIL", "XID_ERRORS", "FB_FREE", "FB_USED", "FB_RESERVED", "NVLINK_BANDWIDTH_TOTAL", "ROW_REMAP_FAILURE",
)  # fmt: skip
COUNTERS = (
    "TOTAL_ENERGY_CONSUMPTION", "PCIE_REPLAY_COUNTER", "UNCORRECTABLE_REMAPPED_ROWS", "CORRECTABLE_REMAPPED_ROWS"
)  # fmt: skip
PROFILING = ("GR_ENGINE_ACTIVE", "PIPE_TENSOR_ACTIVE", "DRAM_ACTIVE", "PCIE_TX_BYTES", "PCIE_RX_BYTES")


def test_every_metric_that_dcgm_exporter_has_by_default_is_told_and_its_counters_are_counters():
    whole = GpuReading(
        H200,
        "ok",
        {field.name: 1 for field in FIELDS},
        parts=[(name, ["x"] * len(kind.labels), 1) for name, kind in PARTS.items()],
        xids=XidTally(),
    )
    gauges = {*(f"DCGM_FI_DEV_{name}" for name in GAUGES), *(f"DCGM_FI_PROF_{name}" for name in PROFILING)}
    counters = {f"DCGM_FI_DEV_{name}" for name in COUNTERS}
    assert {sample.name for sample in metrics(whole)} >= gauges | counters
    assert counters <= DCGM_COUNTERS
    assert not gauges & DCGM_COUNTERS


@pytest.mark.parametrize("state", ["lost", "error", "unresponsive"])
def test_a_gpu_that_does_not_work_is_down_now_whenever_it_answered_last(state):
    (up,) = metrics(GpuReading(H200, state, at_ms=5))
    assert (up.name, up.value, up.at_ms) == ("headworks_gpu_up", 0, 0)


def test_clock_event_reasons_are_told_one_by_one_beside_the_mask():
    found = metrics(GpuReading(H200, "ok", {"clock_event_reasons": 0x48}))
    active = {
        sample.labels["reason"]
        for sample in found
        if sample.name == "headworks_gpu_clock_event_active" and sample.value
    }
    assert active == {"hw_slowdown", "hw_thermal_slowdown"}


def test_the_last_xid_carries_its_meaning_and_a_counter_shows_repeats():
    found = {sample.name: sample for sample in metrics(GpuReading(H200, "ok", xids=XidTally(last=79, total=2)))}
    last = found["DCGM_FI_DEV_XID_ERRORS"]
    assert (last.value, last.labels["err_code"], last.labels["err_msg"]) == (79, "79", "GPU has fallen off the bus")
    assert found["headworks_gpu_xid_errors_total"].value == 2


def test_xids_are_counted_by_class_from_zero_on():
    counted = {"memory": 2, "driver": 0}
    found = [each for each in metrics(GpuReading(H200, "ok", xids_by_class=counted)) if "xid_class" in each.name]
    assert {each.labels["class"]: each.value for each in found} == counted
    assert {each.name for each in found} == {"headworks_gpu_xid_class_total"}


def test_without_an_xid_dcgm_exporters_no_error_stands():
    found = {sample.name: sample for sample in metrics(GpuReading(H200, "ok", xids=XidTally()))}
    last = found["DCGM_FI_DEV_XID_ERRORS"]
    assert (last.value, last.labels["err_code"], last.labels["err_msg"]) == (0, "0", "No Error")


def test_xids_of_a_gpu_that_nvml_does_not_list_and_sxids_are_told_by_pci_address():
    readings = GpuReadings(
        xids_elsewhere={"00000000:05:00.0": XidTally(79, 1)}, sxids={"00000000:C1:00.0": XidTally(12028, 3)}
    )
    found = samples(readings, hostname="gpu-01", rules=XID_RULES, engine_of=lambda pid: None)
    gpu, switch = ({"pci_bus_id": pci, "Hostname": "gpu-01"} for pci in ("00000000:05:00.0", "00000000:C1:00.0"))
    assert list(found) == [
        Sample("DCGM_FI_DEV_XID_ERRORS", {**gpu, "err_code": "79", "err_msg": "GPU has fallen off the bus"}, 79, 0),
        Sample("headworks_gpu_xid_errors_total", gpu, 1, 0),
        Sample("headworks_nvswitch_last_sxid", switch, 12028, 0),
        Sample("headworks_nvswitch_sxids_total", switch, 3, 0),
    ]


def test_a_gpu_that_never_said_who_it_is_has_no_series():
    assert metrics(GpuReading(GpuIdentity(0), "lost")) == []
