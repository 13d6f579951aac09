from __future__ import annotations

import subprocess

import pytest

from gpu_agent.nvml.process import NvmlChild


async def test_a_child_that_ended_by_itself_keeps_its_exit_status(monkeypatch):
    child = await NvmlChild.start(["--library", "/no/such/library"])
    said = [message async for message in child.told()]
    # Popen's own look for the exit status takes it away from asyncio, which then takes the child for lost.
    monkeypatch.setattr(subprocess.Popen, "poll", lambda process: pytest.fail("the exit status was collected"))
    child.kill()
    assert await child.ended(10)
    assert (len(said), child.exit_status) == (1, 0)
