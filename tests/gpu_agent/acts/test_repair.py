"""Resetting a GPU and rebooting the node, by scripts as a site would have them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gpu_agent.acts.doing import do_on_node
from gpu_agent.acts.outcome import NotDone
from gpu_agent.acts.tools import NodeWork
from gpu_agent.nvml.release import NotReleased
from gpu_agent.policy import NodePolicy
from tests.gpu_agent.acts.works import FakeGpus, script, tools, until
from wire.acts import Reboot, Request, ResetGpu

GPU = "GPU-0a1b"


class Node:
    """`kept`: what the agent would know after a restart."""

    def __init__(self, folder: Path, **scripts: str) -> None:
        self.folder, self.gpus, self.kept = folder, FakeGpus(), dict[str, Any]()
        self.boot_id = folder / "boot_id"
        self.boot_id.write_text("first\n")
        names: dict[str, Any] = {name: [str(script(folder / name, text))] for name, text in scripts.items()}
        if "reset_command" in names:
            names["reset_command"].append("{gpu}")
        self.policy = NodePolicy(allow=["reset_gpu", "reboot"], **names)

    async def _keep(self, state: Any) -> None:
        self.kept = dict(state)

    async def do(self, request: Request) -> str:
        used = tools(gpus=self.gpus, boot_id_file=self.boot_id)
        return await do_on_node(request, NodeWork(self.policy, dict(self.kept), self._keep, lambda _: None, used))

    async def problem(self, request: Request) -> tuple[str, str, str]:
        with pytest.raises(NotDone) as end:
            await self.do(request)
        return end.value.state, end.value.reason, end.value.detail


async def test_a_gpu_is_reset_while_nvml_is_closed(tmp_path: Path) -> None:
    node = Node(tmp_path, reset_command=f'echo "$1" >{tmp_path}/reset')
    assert GPU in await node.do(ResetGpu(GPU, limit_seconds=60))
    assert (tmp_path / "reset").read_text() == f"{GPU}\n"
    assert node.gpus.asked == [60, "take up"]


async def test_nvml_is_opened_again_where_the_command_fails_and_it_says_why(tmp_path: Path) -> None:
    node = Node(tmp_path, reset_command="echo GPU is in use; exit 3")
    state, reason, detail = await node.problem(ResetGpu(GPU))
    assert (state, reason) == ("failed", "command_failed")
    assert "status 3" in detail
    assert "GPU is in use" in detail
    assert node.gpus.asked[-1] == "take up"


async def test_nothing_is_reset_where_nvml_cannot_be_closed(tmp_path: Path) -> None:
    node = Node(tmp_path, reset_command=f"touch {tmp_path}/reset")
    node.gpus.error = NotReleased("a process hangs in the driver")
    assert (await node.problem(ResetGpu(GPU)))[1] == "gpus_in_use"
    assert not (tmp_path / "reset").exists()


async def test_a_reset_that_the_agents_end_interrupted_is_not_done_twice(tmp_path: Path) -> None:
    node = Node(tmp_path, reset_command=f"echo run >>{tmp_path}/runs; sleep 60")
    doing = asyncio.create_task(node.do(ResetGpu(GPU)))
    await until((tmp_path / "runs").exists)
    doing.cancel()
    await asyncio.gather(doing, return_exceptions=True)
    assert (await node.problem(ResetGpu(GPU)))[1] == "interrupted"
    assert (tmp_path / "runs").read_text() == "run\n"
    assert node.gpus.asked[-1] == "take up"


async def test_a_reboot_is_done_once_the_agent_finds_itself_in_another_boot(tmp_path: Path) -> None:
    node = Node(tmp_path, reboot_command=f"echo run >>{tmp_path}/runs")
    doing = asyncio.create_task(node.do(Reboot()))
    await until((tmp_path / "runs").exists)
    # As the machine ends it.
    doing.cancel()
    await asyncio.gather(doing, return_exceptions=True)
    node.boot_id.write_text("second\n")
    assert await node.do(Reboot()) == "the node has booted since"
    assert (tmp_path / "runs").read_text() == "run\n"


async def test_a_node_that_does_not_reboot_says_so(tmp_path: Path) -> None:
    node = Node(tmp_path, reboot_command=f"echo run >>{tmp_path}/runs")
    assert (await node.problem(Reboot(limit_seconds=1)))[:2] == ("failed", "did_not_reboot")
    node.kept = {"boot_id": "first"}
    assert (await node.problem(Reboot(limit_seconds=1)))[:2] == ("failed", "did_not_reboot")
    assert (tmp_path / "runs").read_text() == "run\n", "and the command is not run again"
