from __future__ import annotations

import os

from gpu_agent.host.proc import PROC
from gpu_agent.host.system import ephemeral_range, system_samples


def values(proc):
    return {
        (sample.name.removeprefix("headworks_host_"), *sample.labels.values()): sample.value
        for sample in system_samples(proc)
    }


def test_a_real_node_tells_all_of_it():
    found = values(PROC)
    assert found["cpus",] == os.sysconf("SC_NPROCESSORS_ONLN")
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert found["memory_bytes",] == pages
    assert 0 < found["memory_available_bytes",] < pages
    assert 0 < found["file_descriptors_used",] < found.get(("file_descriptors_limit",), float("inf"))
    assert found["cpu_seconds_total", "user"] > 0
    assert found["swap_free_bytes",] <= found["swap_bytes",]
    assert found.keys() >= {("load1",), ("oom_kills_total",), ("cpu_seconds_total", "steal")}
    assert len(ephemeral_range(PROC)) > 0


def test_what_a_kernel_does_not_tell_is_absent(tmp_path):
    (tmp_path / "loadavg").write_text("1.50 1 1 1/2 3\n")
    (tmp_path / "stat").write_text("")
    (tmp_path / "vmstat").write_text("nr_free_pages 7\n")
    assert values(tmp_path) == {("load1",): 1.5}
    assert ephemeral_range(tmp_path) == range(0)


def test_a_limit_that_is_none_is_absent(tmp_path):
    (tmp_path / "sys/fs").mkdir(parents=True)
    (tmp_path / "sys/fs/file-nr").write_text("1225\t0\t9223372036854775807\n")
    assert values(tmp_path) == {("file_descriptors_used",): 1225}
