"""What a GPU has several of, through the library and the state file alike: links, instances, peers, processes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_agent.nvml.fields import PARTS, POLLS
from gpu_agent.nvml.metrics import samples
from gpu_agent.nvml.readings import merged_parts
from gpu_agent.nvml.xids import XID_RULES
from simulator.gpu import fault
from simulator.gpu.state import Process
from tests.gpu_agent.nvml.polling import read_until, states


def parts(readings, index, name):
    """Numbers of one GPU's parts of that name, by their labels."""
    return {tuple(labels): number for kind, labels, number in readings.gpus[index].parts if kind == name}


def pushed(readings, metric):
    found = samples(readings, hostname="gpu-01", rules=XID_RULES, engine_of=lambda _: None)
    return [(sample.labels, sample.value) for sample in found if sample.name == metric]


async def read(watched, name, index=0, timeout_seconds=15.0):
    """The parts of that name, as soon as there are any."""
    readings = await read_until(watched, lambda now: parts(now, index, name), f"{name} of GPU {index}", timeout_seconds)
    return parts(readings, index, name)


def values(state, index, **changed):
    with state.change() as machine:
        machine.gpus[index].values |= changed


async def test_throttled_times_are_told_by_reason_in_seconds(collect, state, source_options):
    values(
        state,
        0,
        throttled_hw_thermal_slowdown_nanoseconds=2_500_000_000,
        throttled_sync_boost_nanoseconds="unsupported",
    )
    watched = await collect(**source_options)
    readings = await read_until(watched, lambda now: parts(now, 0, "throttled_nanoseconds"), "throttled times")
    seconds = {
        labels["reason"]: value
        for labels, value in pushed(readings, "headworks_gpu_throttled_seconds_total")
        if labels["gpu"] == "0"
    }
    assert seconds == {
        "sw_power_cap": 0, "sw_thermal_slowdown": 0, "hw_thermal_slowdown": 2.5, "hw_power_brake_slowdown": 0,
    }  # fmt: skip


async def test_a_margin_past_the_slowdown_is_negative_and_its_limits_are_told(collect, state, source_options):
    values(state, 0, thermal_margin_celsius=-3)
    watched = await collect(**source_options)
    limits = await read(watched, "thermal_margin_limit_celsius")
    assert limits == {("shutdown",): -8, ("slowdown",): -2, ("memory_max",): 0, ("gpu_max",): 0}
    readings = await watched.collector.read()
    assert readings.gpus[0].fields["thermal_margin_celsius"] == -3
    assert [value for labels, value in pushed(readings, "DCGM_FI_DEV_GPU_TEMP_LIMIT") if labels["gpu"] == "0"] == [-3]


@pytest.mark.parametrize("action", range(8))
async def test_each_recovery_action_of_the_driver_is_told(collect, state, source_options, action):
    values(state, 0, recovery_action=action)
    watched = await collect(**source_options)
    assert (await watched.collector.read()).gpus[0].fields["recovery_action"] == action


async def test_nvlinks_are_told_one_by_one_and_their_bytes_by_direction(collect, state, source_options):
    values(state, 0, nvlink_down_mask=0b100, nvlink_tx_kibibytes=3, nvlink_rx_kibibytes=5)
    watched = await collect(**source_options)
    up = await read(watched, "nvlink_up")
    assert up == {(str(link),): int(link != 2) for link in range(18)}
    readings = await watched.collector.read()
    sent = {
        labels["direction"]: value
        for labels, value in pushed(readings, "headworks_gpu_nvlink_bytes_total")
        if labels["gpu"] == "0"
    }
    assert sent == {"tx": 3072, "rx": 5120}


async def test_nvlinks_bytes_have_a_rate_in_dcgms_unit_over_the_time_between_two_readings(
    collect, state, source_options
):
    watched = await collect(**source_options)
    await read(watched, "nvlink_bytes_per_second")
    values(state, 0, nvlink_tx_kibibytes=10**15, nvlink_rx_kibibytes=0)
    readings = await read_until(watched, lambda now: any(parts(now, 0, "nvlink_bytes_per_second").values()), "traffic")
    (rate,) = parts(readings, 0, "nvlink_bytes_per_second").values()
    (told,) = [
        value for labels, value in pushed(readings, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL") if labels["gpu"] == "0"
    ]
    assert told == pytest.approx(rate / 1024 / 1000)
    assert parts(readings, 1, "nvlink_bytes_per_second") == {(): 0}


async def test_a_gpu_without_nvlink_has_no_series_of_it(collect, state, source_options):
    with state.change() as machine:
        for name in list(machine.gpus[0].values):
            if name.startswith("nvlink_"):
                del machine.gpus[0].values[name]
    watched = await collect(**source_options)
    assert await read(watched, "topology")
    readings = await watched.collector.read()
    assert parts(readings, 0, "nvlink_up") == parts(readings, 0, "nvlink_bytes") == {}
    assert parts(readings, 0, "nvlink_bytes_per_second") == {}
    assert readings.gpus[0].fields["nvlink_crc_flit_errors"] == "unsupported"
    assert parts(readings, 1, "nvlink_up")


async def test_mig_instances_are_told_with_their_profile_and_go_when_they_are_cut_anew(collect, state, source_options):
    with state.change() as machine:
        fault.slice_mig(machine, 0)
    watched = await collect(**source_options)
    await read(watched, "mig_instances")
    readings = await watched.collector.read()
    share = state.read().gpus[0].mig.instances[0].memory_total_bytes
    totals = [(labels.get("GPU_I_ID"), value) for labels, value in pushed(readings, "DCGM_FI_DEV_FB_TOTAL")]
    assert totals[:3] == [(None, 150_754_820_096 / 2**20), ("7", share / 2**20), ("8", share / 2**20)]
    assert parts(readings, 0, "mig_instances") == {(): 7}
    assert "gpu_utilization_percent" not in {
        name for name, value in readings.gpus[0].fields.items() if value != "unsupported"
    }
    with state.change() as machine:
        del machine.gpus[0].mig.instances[1:]
    readings = await read_until(watched, lambda now: parts(now, 0, "mig_instances") == {(): 1}, "one instance")
    assert list(parts(readings, 0, "mig_memory_used_bytes")) == [("1g.18gb", "7")]
    with state.change() as machine:
        fault.recover(machine, 0)
    readings = await read_until(watched, lambda now: not parts(now, 0, "mig_instances"), "MIG to be off")
    assert parts(readings, 0, "mig_memory_total_bytes") == {}
    assert states(readings) == ["ok", "ok", "ok"]
    assert watched.events == []


async def test_what_is_read_once_is_read_again_when_mig_is_switched(collect, state, source_options):
    watched = await collect(**source_options)
    values(state, 0, power_limit_max_milliwatts=650_000, remap_pending=1)
    readings = await read_until(watched, lambda now: now.gpus[0].fields["remap_pending"] == 1, "a slow reading")
    assert readings.gpus[0].fields["power_limit_max_milliwatts"] == 700_000
    with state.change() as machine:
        fault.slice_mig(machine, 0)
    await read_until(
        watched, lambda now: now.gpus[0].fields["power_limit_max_milliwatts"] == 650_000, "the limits to be read anew"
    )


async def test_the_topology_is_what_nvidia_smi_calls_it(collect, state, source_options):
    with state.change() as machine:
        first, second, third = machine.gpus
        # A bridge of two links between 0 and 1; 2 has none, at the other socket.
        first.values |= {"nvlink_links": 2, "nvlink_peer": 1, "numa_node": 0}
        second.values |= {"nvlink_links": 2, "nvlink_peer": 0, "nvlink_down_mask": 1, "numa_node": 1, "pcie_switch": 4}
        third.values |= {"nvlink_links": "unsupported", "numa_node": 1, "pcie_switch": 4}
    watched = await collect(**source_options)
    assert await read(watched, "topology", 0) == {("1", "NV2"): 1, ("2", "SYS"): 1}
    assert await read(watched, "topology", 1) == {("0", "NV1"): 1, ("2", "PIX"): 1}
    values(state, 2, pcie_switch="unsupported")
    readings = await watched.collector.read()
    assert readings.gpus[2].fields["numa_node"] == 1
    # It is read once: what changes in it needs a new process.
    assert parts(readings, 1, "topology") == {("0", "NV1"): 1, ("2", "PIX"): 1}


async def test_gpus_on_switches_are_connected_by_all_their_links(collect, state, source_options):
    values(state, 0, nvlink_down_mask=1)
    watched = await collect(**source_options)
    assert await read(watched, "topology", 0) == {("1", "NV17"): 1, ("2", "NV17"): 1}
    assert await read(watched, "topology", 1) == {("0", "NV18"): 1, ("2", "NV18"): 1}


async def test_a_hung_gpu_keeps_no_other_from_being_read_though_the_driver_is_asked_about_pairs(
    collect, state, source_options
):
    with state.change() as machine:
        fault.hang(machine, 1)
    watched = await collect(**source_options)
    readings = await read_until(watched, lambda now: states(now)[1] == "unresponsive", "GPU 1 to be unresponsive")
    assert states(readings) == ["ok", "unresponsive", "ok"]
    assert parts(readings, 0, "nvlink_up")
    assert readings.gpus[1].parts == []
    with state.change() as machine:
        fault.recover(machine, 1)
    # What was asked for once is asked for again.
    assert await read(watched, "thermal_margin_limit_celsius", 1)
    assert await read(watched, "topology", 1) == {("0", "NV18"): 1, ("2", "NV18"): 1}


async def test_profiling_metrics_are_ratios_and_bytes_from_the_second_reading_on(collect, state, source_options):
    values(state, 0, gr_engine_active_per_mille=876, tensor_active_per_mille=350, pcie_tx_mebibytes_per_second=3)
    values(state, 1, gr_engine_active_per_mille="unsupported")
    watched = await collect(**source_options)
    await read(watched, "gr_engine_active_ratio")
    readings = await watched.collector.read()
    assert parts(readings, 0, "gr_engine_active_ratio")[()] == pytest.approx(0.876)
    assert parts(readings, 0, "tensor_active_ratio")[()] == pytest.approx(0.35)
    assert parts(readings, 0, "pcie_tx_bytes_per_second") == {(): 3 * 2**20}
    assert parts(readings, 1, "gr_engine_active_ratio") == {}


async def test_profiling_stops_with_mig_and_starts_anew_after_it(collect, state, source_options):
    watched = await collect(**source_options)
    await read(watched, "dram_active_ratio")
    with state.change() as machine:
        fault.slice_mig(machine, 0)
    await read_until(watched, lambda now: not parts(now, 0, "dram_active_ratio"), "no profiling in MIG mode")
    with state.change() as machine:
        fault.recover(machine, 0)
    assert await read(watched, "dram_active_ratio") == {(): 0}


async def test_processes_are_told_by_host_pid_and_one_without_a_size_is_not(collect, state, source_options):
    with state.change() as machine:
        machine.gpus[0].processes = [Process(4711, 3 * 2**30), Process(4712), Process(2**32 - 1, 1)]
    watched = await collect(**source_options)
    readings = await watched.collector.read()
    assert sorted(readings.gpus[0].processes) == [(4711, 3 * 2**30), (2**32 - 1, 1)]
    assert readings.gpus[1].processes == []
    with state.change() as machine:
        machine.gpus[0].processes = []
    await read_until(watched, lambda now: now.gpus[0].processes == [], "the processes to be gone")


async def test_a_lost_gpu_has_no_parts_and_no_processes(collect, state, source_options):
    with state.change() as machine:
        machine.gpus[0].processes = [Process(4711, 1)]
    watched = await collect(**source_options)
    await read(watched, "nvlink_up")
    with state.change() as machine:
        fault.lose(machine, 0)
    readings = await read_until(watched, lambda now: states(now)[0] == "lost", "GPU 0 to be lost")
    assert (readings.gpus[0].parts, readings.gpus[0].processes) == ([], [])


NUMBERED = st.builds(
    lambda name, number: (name, [str(number)] * len(PARTS[name].labels), number),
    st.sampled_from(sorted(PARTS)),
    st.integers(0, 3),
)


@given(st.lists(NUMBERED), st.lists(NUMBERED), st.sets(st.sampled_from(sorted(POLLS))))
def test_after_an_answer_no_part_stands_twice_and_none_of_an_older_answer_to_the_same_ask(before, answered, polls):
    before = merged_parts([], before, POLLS)
    after = merged_parts(before, answered, polls)
    assert len({(name, *labels) for name, labels, _ in after}) == len(after)
    assert [part for part in after if PARTS[part[0]].poll not in polls] == [
        part for part in before if PARTS[part[0]].poll not in polls
    ]
    assert all(part in answered for part in after if PARTS[part[0]].poll in polls)


def test_parts_of_a_poll_class_stay_until_the_next_of_it():
    before = [("nvlink_up", ["0"], 1), ("nvlink_up", ["1"], 1), ("nvlink_bytes", ["tx"], 7)]
    assert merged_parts(before, [("nvlink_bytes", ["tx"], 9)], ["fast"]) == [*before[:2], ("nvlink_bytes", ["tx"], 9)]
    assert merged_parts(before, [("nvlink_up", ["0"], 0)], ["slow"]) == [before[2], ("nvlink_up", ["0"], 0)]


@pytest.mark.parametrize(
    "part", [("made_up", [], 1), ("nvlink_up", [], 1), ("nvlink_up", ["0", "1"], 1), ("mig_instances", [], 1)]
)
def test_what_is_no_part_that_was_asked_for_is_passed_over(part):
    assert merged_parts([], [part], ["slow"] if part[0] != "mig_instances" else ["fast"]) == []


def test_a_part_is_there_once():
    assert merged_parts([], [("nvlink_up", ["0"], 1), ("nvlink_up", ["0"], 0)], ["slow"]) == [("nvlink_up", ["0"], 0)]


def test_no_two_parts_can_become_one_series():
    kinds = [(kind.metric, kind.labels) for kind in PARTS.values()]
    assert len(set(kinds)) == len(kinds)
