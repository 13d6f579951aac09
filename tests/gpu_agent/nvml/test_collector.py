"""What is read of simulated GPUs, through the whole of it: library or state file, child process, reader."""

from __future__ import annotations

import asyncio
import os
import time

import pytest
from msgspec import UNSET

from gpu_agent.nvml.fields import FIELD_NAMES
from gpu_agent.nvml.source import cuda_version
from simulator.gpu import fault
from tests.gpu_agent.nvml.polling import read_until, states

HEALTHY = ["ok", "ok", "ok"]


async def test_gpus_are_read_with_their_values_and_shown_as_simulated(collect, state, source_options):
    watched = await collect(**source_options)
    readings = await watched.collector.read()
    assert (readings.source, readings.driver_version) == ("simulated", "580.95.05-simulated")
    assert readings.cuda_version == "13.0"
    assert [gpu.identity.index for gpu in readings.gpus] == [0, 1, 2]
    gpu, written = readings.gpus[1], state.read().gpus[1]
    assert (gpu.identity.uuid, gpu.identity.pci_bus_id) == (written.uuid, written.pci_bus_id)
    assert gpu.identity.name.startswith("Simulated ")
    fields = {name: value for name, value in written.values.items() if name in FIELD_NAMES}
    assert {name: gpu.fields[name] for name in fields} == fields
    assert gpu.fields["memory_free_bytes"] == 150_754_820_096 - 642_777_088


async def test_a_driver_that_does_not_say_what_cuda_it_runs_is_read_without(collect, state, source_options):
    with state.change() as machine:
        machine.cuda_driver_version = 0
    watched = await collect(**source_options)
    readings = await watched.collector.read()
    assert (readings.driver_version, readings.cuda_version) == ("580.95.05-simulated", UNSET)


@pytest.mark.parametrize(("number", "said"), [(13_000, "13.0"), (12_080, "12.8"), (11_020, "11.2"), (0, "")])
def test_nvmls_number_of_cuda_is_told_as_people_write_it(number, said):
    assert cuda_version(number) == said


async def test_a_field_that_a_gpu_does_not_support_is_named_so_and_the_others_are_read(collect, state, source_options):
    with state.change() as machine:
        machine.gpus[0].values["memory_total_bytes"] = "unsupported"
        del machine.gpus[0].values["memory_temperature_celsius"]
    watched = await collect(**source_options)
    readings = await watched.collector.read()
    # Beside those that no such board has.
    untouched = readings.gpus[1].fields
    fields = readings.gpus[0].fields
    missing = {name for name, value in fields.items() if value == "unsupported" != untouched[name]}
    memory = {"memory_total_bytes", "memory_free_bytes", "memory_used_bytes", "memory_reserved_bytes"}
    assert missing == {*memory, "memory_temperature_celsius"}


async def test_an_agent_that_stood_still_while_answers_came_calls_no_gpu_unresponsive(collect, fake_nvml, state):
    """Stopped, or suspended with its machine: of the reading that was under way only its deadline is left."""
    watched = await collect(library=str(fake_nvml))
    await read_until(watched, lambda now: states(now) == HEALTHY, "three healthy GPUs")
    reading = asyncio.create_task(watched.collector.read())
    await asyncio.sleep(0)
    time.sleep(2)  # noqa: ASYNC251 - that is what is tested
    await reading
    await read_until(watched, lambda now: states(now) == HEALTHY, "three healthy GPUs")
    assert watched.kinds() == []


async def test_a_hung_gpu_delays_a_reading_by_no_more_than_the_wait_for_answers(collect, state, source_options):
    watched = await collect(**source_options)
    with state.change() as machine:
        fault.hang(machine, 0)
    loop = asyncio.get_running_loop()
    before = loop.time()
    await watched.collector.read()
    assert loop.time() - before < 2


async def test_a_lost_gpu_is_named_and_its_values_stop_while_the_others_go_on(collect, state, source_options):
    watched = await collect(**source_options)
    with state.change() as machine:
        fault.lose(machine, 2)
    readings = await read_until(watched, lambda now: states(now) == ["ok", "ok", "lost"], "GPU 2 to be lost")
    assert not any(isinstance(value, int) for value in readings.gpus[2].fields.values())
    assert watched.kinds() == ["gpu_lost"]
    with state.change() as machine:
        fault.recover(machine, 2)
    await read_until(watched, lambda now: states(now) == HEALTHY, "GPU 2 to be back")
    assert watched.kinds() == ["gpu_lost", "gpu_recovered"]


async def test_a_gpu_lost_from_the_start_hides_no_other(collect, state, source_options):
    with state.change() as machine:
        fault.lose(machine, 0)
    watched = await collect(**source_options)
    readings = await read_until(watched, lambda now: states(now) == ["lost", "ok", "ok"], "the two that are there")
    assert readings.gpus[0].identity.uuid == ""
    assert readings.problems[:2] == [
        "GPU 0 has not said which it is, and is not listed",
        "GPU 0: no XIDs through NVML: GPU is lost",
    ]


async def test_the_first_reading_waits_for_a_gpu_whose_driver_loads_longer_than_an_interval(
    collect, state, source_options
):
    interval_seconds = 1.0

    def loaded():
        with state.change() as machine:
            fault.recover(machine, 1)

    with state.change() as machine:
        fault.hang(machine, 1)
    asyncio.get_running_loop().call_later(1.5 * interval_seconds, loaded)
    watched = await collect(**source_options, interval_seconds=interval_seconds)
    readings = await watched.collector.read()
    assert states(readings) == HEALTHY
    assert readings.gpus[1].identity.uuid == state.read().gpus[1].uuid
    assert watched.events == []


async def test_reading_gpus_can_be_switched_off(collect):
    watched = await collect(source="none")
    readings = await watched.collector.read()
    assert (readings.source, readings.problems[0]) == ("none", "reading GPUs is switched off")
    assert watched.collector.nvml.child_pid is None


async def test_with_mig_on_utilization_is_unsupported_and_the_rest_is_read(collect, state, source_options):
    watched = await collect(**source_options)
    with state.change() as machine:
        fault.slice_mig(machine, 0)
    readings = await read_until(watched, lambda now: now.gpus[0].fields["mig_mode"] == 1, "MIG on")
    assert readings.gpus[0].fields["gpu_utilization_percent"] == "unsupported"
    assert readings.gpus[0].fields["power_milliwatts"] == 76_000
    assert states(readings) == HEALTHY


async def test_throttling_shows_in_the_clock_event_reasons(collect, state, source_options):
    watched = await collect(**source_options)
    with state.change() as machine:
        fault.throttle(machine, 0)
        fault.heat(machine, 1)
    readings = await read_until(watched, lambda now: now.gpus[0].fields["clock_event_reasons"] != 1, "throttling")
    assert [gpu.fields["clock_event_reasons"] for gpu in readings.gpus] == [0x88, 0x48, 0x1]


async def test_stopping_ends_the_child(collect, state, source_options):
    watched = await collect(**source_options)
    pid = watched.collector.nvml.child_pid
    await watched.collector.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
