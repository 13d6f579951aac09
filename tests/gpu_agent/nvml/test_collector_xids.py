"""XIDs of NVML and of the kernel log, put together: counted, told once, with what they ask for."""

from __future__ import annotations

import time

from gpu_agent.nvml.readings import XidTally
from gpu_agent.nvml.xids import COUNTED_CLASSES
from simulator.gpu import fault
from tests.gpu_agent.nvml.polling import read_until, states

HEALTHY = ["ok", "ok", "ok"]


async def test_each_xid_is_an_event_and_a_repeat_is_counted(collect, state, source_options):
    watched = await collect(**source_options)
    await read_until(watched, lambda now: states(now) == HEALTHY, "three watched GPUs")
    for _ in range(2):
        with state.change() as machine:
            fault.throw_xid(machine, 1, 48)
    readings = await read_until(watched, lambda now: now.gpus[1].xids.total == 2, "both XIDs")
    assert readings.gpus[1].xids == XidTally(last=48, total=2)
    assert readings.gpus[0].xids == XidTally()
    assert readings.gpus[1].xids_by_class == {kind: 2 * (kind == "memory") for kind in COUNTED_CLASSES}
    assert not any(readings.gpus[0].xids_by_class.values())
    assert watched.kinds() == ["xid"]
    (event,) = watched.events
    assert (event.node, event.subject, event.severity) == ("gpu-01", readings.gpus[1].identity.uuid, "critical")
    assert event.detail.startswith("XID 48 (Double Bit ECC Error) on GPU 1 (Simulated NVIDIA H200, 00000000:02:00.0)")


async def test_of_a_class_those_that_ask_for_nothing_are_not_counted(collect, state, source_options):
    watched = await collect(**source_options)
    await read_until(watched, lambda now: states(now) == HEALTHY, "three watched GPUs")
    with state.change() as machine:
        fault.throw_xid(machine, 1, 63)
        fault.throw_xid(machine, 1, 13)
    readings = await read_until(watched, lambda now: now.gpus[1].xids.total == 2, "both XIDs")
    assert {kind for kind, total in readings.gpus[1].xids_by_class.items() if total} == {"application"}


async def test_an_xid_thrown_before_the_agent_started_is_not_delivered_through_nvml(collect, state, source_options):
    with state.change() as machine:
        fault.throw_xid(machine, 1, 48)
    watched = await collect(**source_options)
    await read_until(watched, lambda now: states(now) == HEALTHY, "three watched GPUs")
    with state.change() as machine:
        fault.throw_xid(machine, 1, 31)
    readings = await read_until(watched, lambda now: now.gpus[1].xids.total > 0, "the new XID")
    assert readings.gpus[1].xids == XidTally(last=31, total=1)


async def test_xid_79_through_nvml_and_twice_through_the_kernel_log_counts_once(
    collect, state, source_options, tmp_path
):
    kmsg = tmp_path / "kmsg"
    kmsg.touch()
    watched = await collect(**source_options, kmsg_path=kmsg, scan_seconds=86_400 * 30)
    await read_until(watched, lambda now: states(now) == HEALTHY, "three watched GPUs")
    with state.change() as machine:
        fault.throw_xid(machine, 2, 79)
        fault.lose(machine, 2)
    await read_until(watched, lambda now: "xid" in watched.kinds(), "NVML's XID")
    now_us = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
    with kmsg.open("a") as log:
        log.write(f"2,900,{now_us},-;NVRM: Xid (PCI:0000:03:00): 79, pid='<unknown>', GPU has fallen off the bus.\n")
        log.write(" SUBSYSTEM=pci\n DEVICE=+pci:0000:03:00.0\n")
        log.write(f"2,901,{now_us},-;NVRM: GPU 0000:03:00.0: GPU has fallen off the bus.\n")
        log.write(f"2,902,{now_us},-;NVRM: Xid (PCI:0000:01:00): 31, pid=1, name=python\n")
    readings = await read_until(watched, lambda now: now.gpus[0].xids.total == 1, "the kernel log's XID 31")
    assert readings.gpus[2].xids == XidTally(last=79, total=1)
    assert sorted(watched.kinds()) == ["gpu_lost", "xid", "xid"]


async def test_an_xid_that_nvml_told_of_before_a_restart_is_not_told_again_by_the_kernel_log(
    collect, state, source_options, tmp_path
):
    watched = await collect(**source_options)
    await read_until(watched, lambda now: states(now) == HEALTHY, "three watched GPUs")
    with state.change() as machine:
        fault.throw_xid(machine, 2, 79)
    await read_until(watched, lambda now: "xid" in watched.kinds(), "NVML's XID")
    await watched.collector.stop()
    kmsg = tmp_path / "kmsg"
    now_us = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
    kmsg.write_text(
        f"2,900,{now_us},-;NVRM: Xid (PCI:0000:03:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
        f"2,901,{now_us},-;NVRM: Xid (PCI:0000:01:00): 31, pid=1, name=python\n"
    )
    watched = await collect(**source_options, kmsg_path=kmsg)
    await read_until(watched, lambda now: "xid" in watched.kinds(), "the other XID")
    assert [event.detail.split()[1] for event in watched.events if event.kind == "xid"] == ["31"]


async def test_xids_are_told_without_nvml_by_the_kernel_log_alone(collect, tmp_path):
    kmsg = tmp_path / "kmsg"
    now_us = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
    kmsg.write_text(
        f"2,900,{now_us},-;NVRM: Xid (PCI:0000:03:00): 79, pid=1, GPU has fallen off the bus.\n"
        f"2,901,{now_us},-;nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 24007, Fatal, Link 60 timeout\n"
    )
    watched = await collect(source="none", kmsg_path=kmsg)
    await read_until(watched, lambda now: len(watched.events) == 2, "both events")
    assert [(event.kind, event.subject, event.severity) for event in watched.events] == [
        ("xid", "00000000:03:00.0", "critical"),
        ("sxid", "00000000:06:00.0", "critical"),
    ]
    assert watched.events[0].id.endswith("-900")
    readings = await watched.collector.read()
    assert readings.xids_elsewhere == {"00000000:03:00.0": XidTally(79, 1)}
    assert readings.sxids == {"00000000:06:00.0": XidTally(24007, 1)}


async def test_xids_of_a_gpu_that_is_read_are_told_with_it_alone(collect, fake_nvml, state, tmp_path):
    kmsg = tmp_path / "kmsg"
    now_us = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
    kmsg.write_text(f"2,900,{now_us},-;NVRM: Xid (PCI:0000:01:00): 31, pid=1\n")
    watched = await collect(library=str(fake_nvml), kmsg_path=kmsg)
    readings = await read_until(watched, lambda now: watched.events, "the XID")
    assert readings.gpus[0].xids == XidTally(31, 1)
    assert (readings.xids_elsewhere, readings.sxids) == ({}, {})


async def test_a_storm_of_one_sxid_is_one_event_in_a_while_and_one_that_is_fatal_is_always_told(collect, tmp_path):
    kmsg = tmp_path / "kmsg"
    now_us = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
    kinds = [("Non-fatal", 0), ("Non-fatal", 1), ("Non-fatal", 2), ("Fatal", 3), ("Non-fatal", 11)]
    kmsg.write_text(
        "".join(
            f"2,{number},{now_us - (20 - after) * 1_000_000},-;"
            f"nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 12028, {kind}, Link {number} egress\n"
            for number, (kind, after) in enumerate(kinds)
        )
    )
    watched = await collect(source="none", kmsg_path=kmsg)
    await read_until(watched, lambda now: len(watched.events) == 3, "three events")
    first, fatal, later = watched.events
    assert [event.severity for event in watched.events] == ["warning", "critical", "warning"]
    assert "Link 0 egress" in first.detail
    assert "Link 3 egress" in fatal.detail
    assert later.detail.endswith("Link 4 egress; 2 more of it since the last event")


async def test_an_xid_of_a_mig_instance_names_it_and_one_of_the_whole_gpu_does_not(
    collect, state, source_options, tmp_path
):
    kmsg = tmp_path / "kmsg"
    now_us = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
    kmsg.write_text(f"2,1,{now_us},-;NVRM: Xid (PCI:0000:03:00 GPU-I:07): 94, pid=1, name=python\n")
    watched = await collect(**source_options, kmsg_path=kmsg)
    await read_until(watched, lambda now: watched.collector.nvml.watches_xids, "watched GPUs")
    with state.change() as machine:
        fault.slice_mig(machine, 1)
        fault.throw_xid(machine, 1, 94, gpu_instance_id=9)
        fault.throw_xid(machine, 1, 48)
    await read_until(watched, lambda now: len(watched.events) == 3, "all XIDs")
    where = {event.detail.partition(": ")[0].partition(" on ")[2] for event in watched.events}
    assert where == {
        "GPU 2 (Simulated NVIDIA H200, 00000000:03:00.0), MIG instance 7",
        "GPU 1 (Simulated NVIDIA H200, 00000000:02:00.0), MIG instance 9",
        "GPU 1 (Simulated NVIDIA H200, 00000000:02:00.0)",
    }


async def test_xid_154_has_the_recovery_action_read_at_once(collect, state, source_options):
    watched = await collect(**source_options, slow_interval_seconds=3600)
    await read_until(watched, lambda now: states(now) == HEALTHY, "three watched GPUs")
    with state.change() as machine:
        for gpu in machine.gpus:
            gpu.values["recovery_action"] = 1
        fault.throw_xid(machine, 1, 154)
    await read_until(watched, lambda now: now.gpus[1].fields["recovery_action"] == 1, "the recovery action")
    readings = await watched.collector.read()
    assert [gpu.fields["recovery_action"] for gpu in readings.gpus] == [0, 1, 0]


async def test_it_says_which_sources_of_xids_it_has(collect, state, source_options, tmp_path):
    kmsg = tmp_path / "kmsg"
    kmsg.touch()
    watched = await collect(**source_options, kmsg_path=kmsg)
    await read_until(watched, lambda now: watched.collector.xid_sources == ["nvml", "kmsg"], "both sources")
    await watched.collector.release(300)
    assert watched.collector.xid_sources == ["kmsg"]
    without = await collect(source="none")
    readings = await read_until(without, lambda now: len(now.problems) == 2, "both problems")
    assert without.collector.xid_sources == []
    assert readings.problems[1].startswith("the kernel log cannot be read: ")


async def test_an_xid_that_another_ends_is_told_so(collect, tmp_path):
    kmsg = tmp_path / "kmsg"
    now_us = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
    said = enumerate((163, 162))
    kmsg.write_text("".join(f"2,{number},{now_us},-;NVRM: Xid (PCI:0000:03:00): {xid}, x\n" for number, xid in said))
    watched = await collect(source="none", kmsg_path=kmsg)
    await read_until(watched, lambda now: len(watched.events) == 2, "both events")
    disengaged, engaged = (event.detail for event in watched.events)
    assert disengaged.startswith("XID 163 (Power smoothing disengaged) on the GPU at 00000000:03:00.0: class hardware")
    assert engaged.endswith("class information, action none; XID 163 is over")
