from __future__ import annotations

import msgspec
import pytest
from msgspec import UNSET

from gpu_agent.nvml.readings import GpuIdentity, GpuReading, GpuReadings
from gpu_agent.nvml.reports import gpu_problems, gpu_reports
from wire.messages import GpuReport, NodeReport

H200 = GpuIdentity(3, "GPU-3", "NVIDIA H200", "00000000:04:00.0", 3)
REPORTED = GpuReport("GPU-3", 3, "NVIDIA H200", 42, "00000000:04:00.0")


def reports(*gpus, source="nvml", before=()):
    return gpu_reports(GpuReadings(source, "1", list(gpus)), before)


def test_a_gpu_that_never_said_who_it_is_has_no_report():
    assert reports(GpuReading(GpuIdentity(0), "lost")) == []


def test_reports_say_whether_gpus_are_simulated():
    reading = GpuReading(H200, "ok", {"memory_total_bytes": 42})
    assert reports(reading) == [REPORTED]
    (simulated,) = reports(reading, source="simulated")
    assert simulated.simulated


@pytest.mark.parametrize(
    "reading",
    [
        GpuReading(H200, "unresponsive"),
        GpuReading(H200, "lost", {"memory_total_bytes": "lost"}),
        GpuReading(H200, "error", {"memory_total_bytes": "error"}),
    ],
)
def test_a_gpu_that_does_not_answer_keeps_its_row_and_what_was_known_of_it(reading):
    assert reports(reading, before=[REPORTED]) == [msgspec.structs.replace(REPORTED, state=reading.state)]


def test_memory_that_a_gpu_says_it_cannot_tell_is_not_told():
    (report,) = reports(GpuReading(H200, "ok", {"memory_total_bytes": "unsupported"}), before=[REPORTED])
    assert report.memory_bytes is UNSET


def test_a_gpu_that_nvml_counts_no_more_is_gone():
    assert reports(before=[REPORTED]) == []


@pytest.mark.parametrize("later", [2, 3])
def test_a_gpu_that_moved_is_listed_once_where_it_answered_last(later):
    places = [
        GpuReading(GpuIdentity(index, "GPU-3", "NVIDIA H200"), "ok", at_ms=2 if index == later else 1)
        for index in (2, 3)
    ]
    assert [report.index for report in reports(*places)] == [later]


def test_more_problems_than_a_report_has_room_for_make_no_report_that_is_refused():
    problems = gpu_problems(GpuReadings(problems=["no NVML library: x", *["y" * 3000] * 100]))
    assert problems[0] == "no NVML library: x"
    decoded = msgspec.json.decode(msgspec.json.encode(NodeReport("1", gpu_problems=problems)), type=NodeReport)
    assert decoded.gpu_problems == problems
