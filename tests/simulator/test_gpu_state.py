from __future__ import annotations

import multiprocessing
import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.gpu import fault
from simulator.gpu.drive import running_requests
from simulator.gpu.load import HW_THERMAL_REASONS, POWER_BRAKE_REASONS, GpuModel, Load, Wander
from simulator.gpu.state import MAX_XIDS, Process, StateFile, healthy_machine


@pytest.fixture
def file(tmp_path):
    file = StateFile(tmp_path / "gpus.json")
    file.create(healthy_machine(4))
    return file


def test_what_is_written_is_read_back(file):
    assert file.read() == healthy_machine(4)


def test_everything_shows_as_simulated(file):
    machine = file.read()
    assert machine.driver_version.endswith("-simulated")
    assert all(gpu.name.startswith("Simulated ") for gpu in machine.gpus)


def test_uuids_stay_over_restarts_and_differ_between_nodes():
    def uuids(name):
        return [gpu.uuid for gpu in healthy_machine(8, name=name).gpus]

    assert uuids("gpu-01") == uuids("gpu-01")
    assert len({*uuids("gpu-01"), *uuids("gpu-02")}) == 16


def test_an_exception_while_changing_changes_nothing(file):
    def spoil():
        with file.change() as machine:
            machine.gpus.clear()
            raise KeyError("changed my mind")

    with pytest.raises(KeyError):
        spoil()
    assert file.read() == healthy_machine(4)


def throw_many(path, count):
    for _ in range(count):
        with StateFile(path).change() as machine:
            fault.throw_xid(machine, 0, 31)


def test_changes_of_several_processes_are_all_kept(file):
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=throw_many, args=(file.path, 10)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert [xid.sequence for xid in file.read().gpus[0].xids] == list(range(1, 31))


def test_readers_never_see_half_a_file(file):
    stop = threading.Event()

    def write():
        while not stop.is_set():
            with file.change() as machine:
                fault.throw_xid(machine, 0, 31)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(300):
            file.read()
    finally:
        stop.set()
        writer.join()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"gpus": [], "format": 2}', '{"gpus": [{}]}', "\0"])
def test_a_file_that_is_no_state_file_is_refused_by_name(file, text):
    file.path.write_text(text)
    with pytest.raises(ValueError, match="is no state file of simulated GPUs"):
        file.read()


def test_old_xids_are_dropped_and_sequences_go_on():
    machine = healthy_machine(1)
    for _ in range(MAX_XIDS + 5):
        fault.throw_xid(machine, 0, 31)
    assert [xid.sequence for xid in machine.gpus[0].xids] == list(range(6, MAX_XIDS + 6))


def test_faults_come_from_the_command_line_and_recover_ends_them(file, capsys):
    for name in ("hot", "throttle", "mig", "lost", "hang"):
        assert fault.main([str(file.path), "--gpu", "1", name]) == 0
    assert fault.main([str(file.path), "--gpu", "1", "xid", "79"]) == 0
    gpu = file.read().gpus[1]
    assert (gpu.state, gpu.condition, gpu.mig.enabled, gpu.xids[0].xid) == ("hang", "throttled", True, 79)
    assert fault.main([str(file.path), "--gpu", "1", "recover"]) == 0
    gpu = file.read().gpus[1]
    assert (gpu.state, gpu.condition, gpu.mig.enabled) == ("ok", "normal", False)
    assert file.read().gpus[0] == healthy_machine(4).gpus[0]
    assert fault.main([str(file.path), "--gpu", "4", "lost"]) == 2
    assert "this machine has GPUs 0 to 3" in capsys.readouterr().err


def numbers(gpu) -> dict[str, int]:
    return {name: value for name, value in gpu.values.items() if isinstance(value, int)}


def settle(gpu, load, seconds=600):
    model = GpuModel.of(gpu, random.Random(1))
    for _ in range(seconds):
        model.step(gpu, load, 1)
    return dict(gpu.values)


def test_work_raises_utilization_power_memory_and_temperature():
    idle = settle(healthy_machine(1).gpus[0], Load(0, engine_up=False))
    some, full = (settle(healthy_machine(1).gpus[0], Load(running)) for running in (2, 64))
    for name in ("gpu_utilization_percent", "power_milliwatts", "temperature_celsius"):
        assert idle[name] < some[name] < full[name], name
    assert idle["memory_used_bytes"] == 0
    assert full["memory_used_bytes"] == pytest.approx(0.9 * full["memory_total_bytes"], rel=0.01)
    assert full["power_milliwatts"] <= full["power_limit_milliwatts"]
    assert 50 < full["temperature_celsius"] < 85
    assert full["energy_millijoules"] == pytest.approx(600 * 700_000, rel=0.1)


def test_work_shows_in_profiling_nvlink_and_throttled_time():
    idle, full = (settle(healthy_machine(1).gpus[0], Load(running)) for running in (0, 64))
    for name in ("gr_engine_active_per_mille", "tensor_active_per_mille", "nvlink_tx_kibibytes"):
        assert idle[name] == 0 < full[name], name
    assert full["dram_active_per_mille"] <= 1000
    assert full["thermal_margin_celsius"] == pytest.approx(87 - full["temperature_celsius"], abs=1)
    hot = healthy_machine(1)
    fault.heat(hot, 0)
    assert hot.gpus[0].values["thermal_margin_celsius"] == -6
    slowed = settle(hot.gpus[0], Load(64), seconds=30)
    assert slowed["throttled_hw_thermal_slowdown_nanoseconds"] == 30e9
    assert slowed["throttled_hw_power_brake_slowdown_nanoseconds"] == 0


def test_faults_hold_while_load_goes_on():
    machine = healthy_machine(2)
    fault.heat(machine, 0)
    fault.throttle(machine, 1)
    hot, throttled = (settle(gpu, Load(64)) for gpu in machine.gpus)
    assert hot["temperature_celsius"] > 85
    assert (hot["clock_event_reasons"], throttled["clock_event_reasons"]) == (HW_THERMAL_REASONS, POWER_BRAKE_REASONS)
    assert hot["sm_clock_mhz"] < 1000


def test_what_a_gpu_does_not_support_stays_so():
    gpu = healthy_machine(1).gpus[0]
    gpu.values["temperature_celsius"] = "unsupported"
    del gpu.values["energy_millijoules"]
    values = settle(gpu, Load(8), seconds=3)
    assert values["temperature_celsius"] == "unsupported"
    assert "energy_millijoules" not in values


def test_the_same_seed_gives_the_same_machine():
    def run(seed):
        rng = random.Random(seed)
        wander, gpu = Wander(rng), healthy_machine(1).gpus[0]
        model = GpuModel.of(gpu, rng)
        seen = []
        for _ in range(50):
            model.step(gpu, wander.step(1), 1)
            seen.append(dict(gpu.values))
        return seen

    assert run(7) == run(7)
    assert run(7) != run(8)


@given(st.lists(st.tuples(st.floats(0, 1e4), st.booleans(), st.floats(0.01, 3600)), max_size=30), st.integers(0, 2**32))
def test_values_stay_what_nvml_may_say(steps, seed):
    gpu = healthy_machine(1).gpus[0]
    model = GpuModel.of(gpu, random.Random(seed))
    for running, up, seconds in steps:
        energy_before = numbers(gpu)["energy_millijoules"]
        model.step(gpu, Load(running, up), seconds)
        values = numbers(gpu)
        assert 0 <= values["gpu_utilization_percent"] <= 100
        assert 0 <= values["memory_used_bytes"] <= values["memory_total_bytes"] - values["memory_reserved_bytes"]
        assert 0 < values["power_milliwatts"] <= values["power_limit_milliwatts"]
        assert 20 <= values["temperature_celsius"] < 100
        assert values["energy_millijoules"] > energy_before


@pytest.mark.parametrize(
    ("page", "running"),
    [
        (b'vllm:num_requests_running{engine="0",model_name="m"} 3.0\n', 3),
        (b'vllm:num_requests_running{engine="0"} 3.0\nvllm:num_requests_running{engine="1"} 4\n', 7),
        (b"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running_total 9\n", 0),
        (b"vllm:num_requests_running 1e\nvllm:num_requests_running -4\n", 0),
        (b"\xff\xfe", 0),
    ],
)
def test_running_requests_are_read_off_an_engines_page(page, running):
    assert running_requests(page) == running


def test_an_uncorrectable_error_counts_and_asks_for_a_reset_until_that_is_done():
    machine = healthy_machine(2)
    fault.corrupt(machine, 1)
    fault.corrupt(machine, 1)
    values = machine.gpus[1].values
    assert values["ecc_uncorrected_volatile_errors"] == values["ecc_uncorrected_volatile_device_memory_errors"] == 2
    assert (values["remap_pending"], values["recovery_action"]) == (1, 1)
    assert machine.gpus[0] == healthy_machine(2).gpus[0]
    fault.recover(machine, 1)
    assert values["ecc_uncorrected_volatile_errors"] == values["recovery_action"] == values["remap_pending"] == 0
    assert values["ecc_uncorrected_aggregate_errors"] == 2


def test_a_stranger_holds_memory_beside_the_processes_that_were_there_and_leaves_alone():
    machine = healthy_machine(1)
    machine.gpus[0].processes = [Process(4711, 2**30)]
    fault.crowd(machine, 0)
    fault.crowd(machine, 0)
    assert [each.pid for each in machine.gpus[0].processes] == [4711, fault.STRANGER_PID]
    fault.recover(machine, 0)
    assert [each.pid for each in machine.gpus[0].processes] == [4711]


def test_a_gpu_without_nvlink_has_it_again_when_it_recovers():
    machine = healthy_machine(1)
    fault.unlink(machine, 0)
    assert machine.gpus[0].values["nvlink_links"] == 0
    fault.recover(machine, 0)
    assert machine == healthy_machine(1)
