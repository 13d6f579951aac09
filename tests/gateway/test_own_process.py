"""What the gateway's process tells of itself."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from gateway.own_process import ProcessMoment, own_process, process_families


def test_open_files_are_counted_as_they_come_and_go(tmp_path: Path):
    before = own_process().open_fds
    assert before is not None
    opened = [os.open(tmp_path, os.O_RDONLY) for _ in range(40)]
    try:
        now = own_process().open_fds
        assert now is not None
        # Other threads of the tests may close some meanwhile.
        assert 20 <= now - before <= 60
    finally:
        for each in opened:
            os.close(each)


def test_it_knows_its_limit_and_the_time_that_it_used():
    told = own_process()
    assert told.fd_limit == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert told.cpu_seconds > 0


def test_what_the_system_does_not_tell_has_no_series(tmp_path: Path):
    assert own_process(tmp_path / "no-such-folder").open_fds is None
    sampled = {
        family.name: [sample.value for sample in family.samples]
        for family in process_families(ProcessMoment(None, None, 1.5))
    }
    assert sampled == {
        "headworks_gateway_open_fds": [],
        "headworks_gateway_fd_limit": [],
        "headworks_gateway_cpu_seconds": [1.5],
    }
