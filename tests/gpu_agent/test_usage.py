from __future__ import annotations

import os
import subprocess
import sys

from gpu_agent.usage import own_samples, usage_of
from tests.services import wait_for
from wire.spool import Spool


def test_it_tells_what_a_process_holds_and_has_used():
    code = "held = bytearray(b'x') * 50_000_000\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code]) as busy:
        try:
            wait_for(lambda: (seen := usage_of(busy.pid)) and seen.cpu_seconds > 0.2, 30, "time to be used")
            seen = usage_of(busy.pid)
            assert seen is not None
            assert 50_000_000 < seen.resident_bytes < 100_000_000
        finally:
            busy.kill()
    assert usage_of(busy.pid) is None, "it is gone"


def test_the_agents_own_metrics_tell_of_its_processes_and_spools(tmp_path):
    spool = Spool(tmp_path / "spool", limit_bytes=2**20)
    spool.put([b"one", b"two"])
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for sample in own_samples(
            gpu_source="simulated",
            xid_sources=["kmsg"],
            processes={"agent": os.getpid(), "nvml": 2**22 + 1},
            spools={"metrics": spool},
        )
    }
    spool.close()
    assert found["headworks_agent_up",] == 1
    assert found["headworks_agent_gpu_source_info", "simulated"] == 1
    assert found["headworks_agent_xid_source_info", "kmsg"] == 1
    assert found["headworks_agent_spool_waiting_records", "metrics"] == 2
    assert found["headworks_agent_spool_dropped_records_total", "metrics"] == 0
    assert found["headworks_agent_resident_bytes", "agent"] > 2**20
    assert found["headworks_agent_cpu_seconds_total", "agent"] > 0
    assert ("headworks_agent_resident_bytes", "nvml") not in found, "no process, no sample"


def test_a_source_of_gpus_that_is_not_known_yet_is_not_told():
    names = {sample.name for sample in own_samples(gpu_source=None, xid_sources=[], processes={}, spools={})}
    assert names == {"headworks_agent_up"}
