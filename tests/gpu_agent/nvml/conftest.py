from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from gpu_agent.nvml.collector import CollectorOptions, GpuCollector
from gpu_agent.nvml.reader import NvmlOptions
from gpu_agent.nvml.xids import XID_RULES
from wire.messages import Event


@pytest.fixture(params=["library", "state file"])
def source_options(request, state):
    """The two ways to simulated GPUs: both must behave alike."""
    if request.param == "state file":
        return {"source": f"simulated:{state.path}", "library": ""}
    return {"source": "nvml", "library": str(request.getfixturevalue("fake_nvml"))}


def nvml_options(**given):
    return NvmlOptions(
        **{
            "source": "nvml",
            "library": "",
            "interval_seconds": 0.2,
            "slow_interval_seconds": 0.2,
            "processes_interval_seconds": 0.2,
            "answer_seconds": 0.1,
            "open_seconds": 20,
            "retry_seconds": 0.5,
            **given,
        }
    )


@dataclass
class Watched:
    """A running collector and the events it told."""

    collector: GpuCollector
    events: list[Event] = field(default_factory=list)

    def kinds(self):
        return [event.kind for event in self.events]


@pytest.fixture
async def collect(tmp_path, monkeypatch):
    """Starts collectors, and stops them at the end."""
    started = []

    async def start(*, kmsg_path=None, scan_seconds=3600, dcgm_exporter_url="", **nvml):
        options = CollectorOptions(
            node="gpu-01",
            state_dir=tmp_path / "agent",
            nvml=nvml_options(**nvml),
            kmsg_path=kmsg_path or tmp_path / "no-kmsg",
            kmsg_scan_seconds=scan_seconds,
            rules=XID_RULES,
            dcgm_exporter_url=dcgm_exporter_url,
        )
        events: list[Event] = []
        watched = Watched(GpuCollector(options, events.append), events)
        started.append(watched.collector)
        await watched.collector.start()
        return watched

    yield start
    for collector in started:
        await collector.stop()
