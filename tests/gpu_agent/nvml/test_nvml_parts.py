"""What drivers do that the simulated library does not: parts read through an NVML whose answers a test sets."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_agent.nvml.parts import mig, nvlink, processes, topology, values
from gpu_agent.nvml.parts.gpm import Gpm

pynvml: Any = importlib.import_module("pynvml")
GPU = "a handle"


class Nvml:
    """pynvml, with some of its calls answered by the test; a call that is not is absent from the driver."""

    def __init__(self, **calls):
        self._calls = calls

    def __getattr__(self, name):
        if name in self._calls:
            return self._calls[name]
        if name.startswith("nvml") and callable(getattr(pynvml, name)):
            return lambda *_: fail(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return getattr(pynvml, name)


def fail(code):
    raise pynvml.NVMLError(code)


def field_values(told):
    """GetFieldValues of a driver that tells these (field, scope), and of others says what one does that knows none."""

    def call(handle, wanted):
        answers = []
        for field in wanted:
            value = pynvml.c_nvmlFieldValue_t()
            if isinstance(told.get(field), int):
                value.valueType = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
                value.value.ullVal = told[field]
            else:
                value.nvmlReturn = pynvml.NVML_ERROR_INVALID_ARGUMENT
            answers.append(value)
        return answers

    return {"nvmlDeviceGetFieldValues": call}


def test_a_field_that_the_driver_does_not_know_is_unsupported_and_no_error():
    with pytest.raises(pynvml.NVMLError_NotSupported):
        values.field_value(Nvml(**field_values({})), GPU, 230)


def test_a_number_with_all_bits_set_is_none():
    nvml = Nvml(**field_values({(74, 0): 2**64 - 1, (76, 0): 5}))
    numbers = {"sw_power_cap": 74, "sync_boost": 76}
    assert values.throttled(nvml, numbers, GPU) == [("throttled_nanoseconds", ["sync_boost"], 5)]


@pytest.mark.parametrize(
    ("driver_version", "slowdowns"),
    [
        ("570.195.03", []),
        ("575.57.08", [251, 252, 253]),
        ("580.95.05-simulated", [251, 252, 253]),
        ("590.44.01", [269, 270, 271]),
        ("615.10", [269, 270, 271]),
        ("", []),
    ],
)
def test_throttled_times_have_the_numbers_of_the_driver_and_not_those_of_another(driver_version, slowdowns):
    """R590 gave the numbers that R575 and R580 have for them to power smoothing, and the other way about."""
    numbers = values.throttled_numbers(driver_version)
    assert list(numbers.values()) == [74, 76, *slowdowns]
    reasons = ["sw_power_cap", "sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"]
    assert list(numbers) == reasons[: len(numbers)]


@pytest.mark.parametrize(
    ("kind", "member", "number"),
    [
        ("SIGNED_INT", "siVal", -8),
        ("UNSIGNED_INT", "uiVal", 3),
        ("DOUBLE", "dVal", 4.0),
        ("UNSIGNED_SHORT", "usVal", 2),
    ],
)
def test_a_field_value_is_read_as_the_type_that_the_driver_gives_it(kind, member, number):
    value = pynvml.c_nvmlFieldValue_t(valueType=getattr(pynvml, f"NVML_VALUE_TYPE_{kind}"))
    setattr(value.value, member, number)
    nvml = Nvml(nvmlDeviceGetFieldValues=lambda *_: [value])
    assert values.field_value(nvml, GPU, 193) == number


def errors(told):
    nvml = Nvml(**field_values(told))
    found: dict[str, int | str] = {}
    for name, count in nvlink.error_calls(nvml):
        try:
            found[name] = count(GPU)
        except pynvml.NVMLError_NotSupported:
            found[name] = "unsupported"
    return found


def test_traffic_has_a_rate_from_the_second_reading_on_and_none_where_the_driver_counts_anew():
    now, counted = iter((10.0, 12.0, 13.0, 13.0)), iter(((0, 512), (2048, 512), (0, 0), (1, 1)))
    traffic = nvlink.Traffic(
        lambda _: [("nvlink_bytes", [way], number) for way, number in zip(("tx", "rx"), next(counted), strict=True)],
        clock=lambda: next(now),
    )
    rates = [[number for name, _, number in traffic.read(GPU) if name == "nvlink_bytes_per_second"] for _ in range(4)]
    assert rates == [[], [1024], [], []]


def test_traffic_of_one_direction_alone_has_no_rate():
    traffic = nvlink.Traffic(lambda _: [("nvlink_bytes", ["tx"], 1)])
    assert [traffic.read(GPU), traffic.read(GPU)] == [[("nvlink_bytes", ["tx"], 1)]] * 2


def test_nvlink_errors_are_added_up_by_link_where_the_driver_has_no_total():
    by_link = {(91, 0): 3, (161, 0): 1, (161, 2): 4, (163, 1): 7}
    assert errors(by_link) == {
        "nvlink_crc_flit_errors": 7,
        "nvlink_crc_data_errors": "unsupported",
        "nvlink_replay_errors": 5,
        "nvlink_recovery_errors": "unsupported",
    }
    assert errors({(91, 0): 3, (52, 0): 9, (161, 0): 1})["nvlink_replay_errors"] == 9


def test_a_link_count_that_cannot_be_reads_no_more_links_than_there_may_be():
    nvml = Nvml(**field_values({(91, 0): 2**40}), nvmlDeviceGetNvLinkState=lambda *_: 1)
    assert len(nvlink.links_up(nvml, GPU)) == pynvml.NVML_NVLINK_MAX_LINKS


def test_a_link_that_a_board_does_not_use_is_passed_over():
    states = {0: 1, 1: None, 2: 0}

    def state(_, link):
        return fail(pynvml.NVML_ERROR_NOT_SUPPORTED) if states[link] is None else states[link]

    nvml = Nvml(**field_values({(91, 0): 3}), nvmlDeviceGetNvLinkState=state)
    assert nvlink.links_up(nvml, GPU) == [("nvlink_up", ["0"], 1), ("nvlink_up", ["2"], 0)]


def sliced(*devices, **calls):
    """MIG devices, each (GPU instance, name, memory in bytes) or None: that one is gone when it is asked."""

    def memory(device, _):
        if device is None:
            fail(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return SimpleNamespace(total=device[2], free=device[2], used=0)

    return Nvml(
        nvmlDeviceGetMigMode=lambda _: [1, 1],
        nvmlDeviceGetMaxMigDeviceCount=lambda _: 7,
        nvmlDeviceGetMigDeviceHandleByIndex=lambda _, index: (
            devices[index] if index < len(devices) else fail(pynvml.NVML_ERROR_NOT_FOUND)
        ),
        nvmlDeviceGetGpuInstanceId=lambda device: device[0] if device else fail(pynvml.NVML_ERROR_INVALID_ARGUMENT),
        nvmlDeviceGetName=lambda device: device[1],
        nvmlDeviceGetMemoryInfo=memory,
        **calls,
    )


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("NVIDIA H200 MIG 1g.18gb", "1g.18gb"),
        ("NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb", "3g.40gb"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb+me", "1g.5gb+me"),
        ("NVIDIA H200\n", "unknown"),
    ],
)
def test_a_mig_profile_is_the_gpu_instances(name, profile):
    parts = mig.instances(sliced((7, name, 5)), GPU)
    assert parts[0] == ("mig_instances", [], 1)
    assert {tuple(labels) for _, labels, _ in parts[1:]} == {(profile, "7")}


def test_an_instance_that_vanishes_between_two_calls_is_passed_over():
    parts = mig.instances(sliced((7, "X MIG 1g.5gb", 5), None, (9, "X MIG 2g.10gb", 10)), GPU)
    assert parts[0] == ("mig_instances", [], 2)
    assert {labels[1] for _, labels, _ in parts[1:]} == {"7", "9"}


def test_compute_instances_of_one_gpu_instance_share_one_series():
    parts = mig.instances(sliced((2, "X MIG 1c.3g.20gb", 20), (2, "X MIG 1c.3g.20gb", 20)), GPU)
    assert parts[0] == ("mig_instances", [], 1)
    assert len(parts) == 4


def connected(ancestor, p2p=pynvml.NVML_P2P_STATUS_NOT_SUPPORTED, links=0):
    return Nvml(
        **field_values({(91, 0): links}),
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetPciInfo=lambda index: SimpleNamespace(busId=f"00000000:0{index}:00.0"),
        nvmlDeviceGetNvLinkState=lambda *_: 1,
        nvmlDeviceGetNvLinkRemoteDeviceType=lambda *_: pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH,
        nvmlDeviceGetP2PStatus=lambda *_: p2p,
        nvmlDeviceGetTopologyCommonAncestor=lambda *_: ancestor,
    )


@pytest.mark.parametrize(
    ("ancestor", "link"),
    [
        (pynvml.NVML_TOPOLOGY_INTERNAL, "PIX"),
        (pynvml.NVML_TOPOLOGY_SINGLE, "PIX"),
        (pynvml.NVML_TOPOLOGY_MULTIPLE, "PXB"),
        (pynvml.NVML_TOPOLOGY_HOSTBRIDGE, "PHB"),
        (pynvml.NVML_TOPOLOGY_NODE, "NODE"),
        (pynvml.NVML_TOPOLOGY_SYSTEM, "SYS"),
    ],
)
def test_pcie_paths_have_the_names_of_nvidia_smi(ancestor, link):
    assert topology.topology(connected(ancestor), 0) == [("topology", ["1", link], 1)]


def test_a_path_that_the_driver_has_no_name_for_is_not_told():
    assert topology.topology(connected(17), 0) == []


def test_links_to_switches_connect_only_gpus_that_may_talk_over_them():
    """As where the fabric manager has put them into different partitions."""
    apart = connected(pynvml.NVML_TOPOLOGY_SYSTEM, links=18)
    assert topology.topology(apart, 0) == [("topology", ["1", "SYS"], 1)]
    together = connected(pynvml.NVML_TOPOLOGY_SYSTEM, p2p=pynvml.NVML_P2P_STATUS_OK, links=18)
    assert topology.topology(together, 0) == [("topology", ["1", "NV18"], 1)]


@pytest.mark.parametrize(("words", "node"), [([0b1], 0), ([0, 0b10], 65), ([0b11], None), ([0], None)])
def test_a_numa_node_is_told_where_it_is_one(words, node):
    nvml = Nvml(nvmlDeviceGetMemoryAffinity=lambda *_: words)
    if node is None:
        with pytest.raises(pynvml.NVMLError_NotSupported):
            topology.numa_node(nvml, GPU)
    else:
        assert topology.numa_node(nvml, GPU) == node


class GpmDriver:
    """Keeps account of the samples that it gave out."""

    def __init__(self):
        self.held: set[int] = set()
        self.given = 0
        self.working = True
        self.percent = 50.0

    def alloc(self):
        self.given += 1
        self.held.add(self.given)
        return self.given

    def get(self, _, sample):
        if not self.working:
            fail(pynvml.NVML_ERROR_NOT_SUPPORTED)
        assert sample in self.held

    def measure(self, asked):
        assert {asked.sample1, asked.sample2} == self.held
        for place in range(asked.numMetrics):
            asked.metrics[place].value = self.percent
            asked.metrics[place].nvmlReturn = 0 if place != 1 else pynvml.NVML_ERROR_NOT_SUPPORTED

    def nvml(self):
        return Nvml(
            nvmlGpmQueryDeviceSupport=lambda _: SimpleNamespace(isSupportedDevice=1),
            nvmlGpmSampleAlloc=self.alloc,
            nvmlGpmSampleFree=self.held.remove,
            nvmlGpmSampleGet=self.get,
            nvmlGpmMetricsGet=self.measure,
            c_nvmlGpmMetricsGet_t=lambda **given: SimpleNamespace(
                **given, metrics=[SimpleNamespace(metricId=0) for _ in range(9)]
            ),
        )


@pytest.fixture
def clock(monkeypatch):
    """Each look at the clock is five seconds after the one before."""
    now = [0.0]

    def monotonic():
        now[0] += 5
        return now[0]

    monkeypatch.setattr("gpu_agent.nvml.parts.gpm.time.monotonic", monotonic)


def test_profiling_holds_two_samples_and_frees_them_when_the_driver_stops_telling(clock):
    driver = GpmDriver()
    gpm = Gpm(driver.nvml())
    assert gpm.read(GPU) == []
    for _ in range(3):
        # One metric fails, and the others are told.
        assert {name for name, _, _ in gpm.read(GPU)} == {
            "gr_engine_active_ratio", "dram_active_ratio", "pcie_tx_bytes_per_second", "pcie_rx_bytes_per_second",
        }  # fmt: skip
        assert len(driver.held) == 2
    driver.working = False
    with pytest.raises(pynvml.NVMLError_NotSupported):
        gpm.read(GPU)
    assert driver.held == set()
    driver.working = True
    # What was before says nothing about now.
    assert gpm.read(GPU) == []
    assert gpm.read(GPU)


@pytest.mark.parametrize(("percent", "ratio"), [(37.5, 0.375), (100.4, 1.0)])
def test_profiling_ratios_end_at_1(clock, percent, ratio):
    driver = GpmDriver()
    driver.percent = percent
    gpm = Gpm(driver.nvml())
    gpm.read(GPU)
    assert ("gr_engine_active_ratio", [], ratio) in gpm.read(GPU)


@pytest.mark.parametrize("percent", [float("nan"), float("inf"), -1.0])
def test_a_profiling_metric_that_is_no_number_is_not_told(clock, percent):
    driver = GpmDriver()
    driver.percent = percent
    gpm = Gpm(driver.nvml())
    gpm.read(GPU)
    assert gpm.read(GPU) == []


def test_two_readings_too_close_together_are_one(monkeypatch):
    driver = GpmDriver()
    now = iter([0.0, 5.0, 5.05])
    monkeypatch.setattr("gpu_agent.nvml.parts.gpm.time.monotonic", lambda: next(now))
    gpm = Gpm(driver.nvml())
    gpm.read(GPU)
    told = gpm.read(GPU)
    driver.working = False
    assert gpm.read(GPU) == told != []


def process(pid, used_bytes, instance=0xFFFFFFFF):
    return SimpleNamespace(pid=pid, usedGpuMemory=used_bytes, gpuInstanceId=instance, computeInstanceId=instance)


def test_processes_of_mps_and_of_instances_are_counted_once_each():
    nvml = Nvml(
        nvmlDeviceGetComputeRunningProcesses_v3=lambda _: [process(7, 5), process(8, 3, 1), process(8, 4, 2)],
        nvmlDeviceGetMPSComputeRunningProcesses_v3=lambda _: [process(7, 5), process(9, 1), process(10, None)],
    )
    assert sorted(processes.processes(nvml, GPU)) == [(7, 5), (8, 7), (9, 1)]


def test_a_driver_without_the_newest_calls_still_lists_processes():
    nvml = Nvml(nvmlDeviceGetComputeRunningProcesses_v2=lambda _: [process(7, 5)])
    assert processes.processes(nvml, GPU) == [(7, 5)]
