from __future__ import annotations

import asyncio
import logging
import os
import socket
from pathlib import Path

import pytest

from gpu_agent.host import watch as watch_module
from gpu_agent.host.processes import ProcessMap
from gpu_agent.host.watch import HostOptions, HostWatch
from gpu_agent.policy import EnginePolicy, NodePolicy
from tests.gpu_agent.host.proc_tree import ProcTree, row
from wire.snapshot import NodeEngine

DOCS = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"
DISK_SERIES = {"headworks_host_disk_bytes", "headworks_host_disk_available_bytes"}


def engines(port):
    return {"e1": NodeEngine(f"http://127.0.0.1:{port}", "vllm", "short", "llama")}


def watch(proc, *disk_paths):
    return HostWatch(HostOptions(15, disk_paths, proc), ProcessMap(proc))


async def test_one_look_tells_of_an_engine_its_sockets_and_the_node(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        at = engines(listener.getsockname()[1])
        host = HostWatch(HostOptions(15, (str(tmp_path),)), ProcessMap())
        found = {(sample.name, *sample.labels.values()): sample.value for sample in await host.look(at)}
    assert found["headworks_engine_connections", "e1", "established"] == 0
    assert found["headworks_engine_process_resident_bytes", "e1", "api"] > 2**20
    assert found["headworks_engine_process_open_fds", "e1", "api"] > 0
    assert found["headworks_host_ephemeral_ports_used",] < found["headworks_host_ephemeral_ports_limit",]
    assert found["headworks_host_disk_bytes", str(tmp_path)] > 0
    assert host.problems == {}
    documented = DOCS.read_text()
    names = {name.removeprefix("headworks_host_").removeprefix("headworks_engine_") for name, *_ in found}
    assert {name for name in names if f"`{name}`" not in documented} == set()


async def test_a_file_of_proc_that_does_not_answer_costs_what_is_read_there_alone(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(watch_module, "_ANSWER_SECONDS", 0.1)
    tree = ProcTree(tmp_path)
    os.mkfifo(tmp_path / "loadavg")
    host = watch(tree.root, str(tmp_path))
    for _ in range(3):
        assert {sample.name for sample in await host.look({})} == DISK_SERIES
        assert host.problems.keys() == {"/proc"}
    assert sum("/proc" in message for message in caplog.messages) == 1
    with (tmp_path / "loadavg").open("w"):
        (tmp_path / "loadavg").unlink()
    monkeypatch.undo()
    async with asyncio.timeout(10):
        while host.problems:
            found = {sample.name for sample in await host.look({})}
    assert "headworks_host_cpus" in found


async def test_a_problem_is_said_once_and_the_rest_goes_on(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    tree = ProcTree(tmp_path)
    tree.tcp([row(8000, "0A", "7"), row(8000, "01")])
    host = watch(tree.root, str(tmp_path / "missing"))
    for _ in range(3):
        found = {sample.name for sample in await host.look(engines(8000))}
        assert "headworks_engine_connections" in found
        assert "headworks_host_cpus" in found
        assert "headworks_engine_process_threads" not in found
    assert host.problems.keys() == {"engine e1", f"disk {tmp_path / 'missing'}"}
    assert [problem.partition(": ")[0] for problem in host.problems_said()] == sorted(host.problems)
    assert sum("hostPID" in message for message in caplog.messages) == 1
    assert len(caplog.messages) == 2
    await host.look({})
    await host.look(engines(8000))
    assert sum("hostPID" in message for message in caplog.messages) == 2, "an engine that is new again"


async def test_no_proc_costs_no_disk(tmp_path):
    host = watch(tmp_path / "missing", str(tmp_path))
    assert {sample.name for sample in await host.look({})} == DISK_SERIES
    assert host.problems.keys() == {"/proc"}


@pytest.mark.parametrize(("chosen", "paths"), [("", ()), ("/a, /b,/a", ("/a", "/b"))])
def test_disks_are_those_of_the_spools_those_chosen_and_those_of_models(monkeypatch, chosen, paths):
    monkeypatch.setenv("HEADWORKS_AGENT_DISK_PATHS", chosen)
    policy = NodePolicy(engines={"e1": EnginePolicy(model_path="/models/llama"), "e2": EnginePolicy()})
    assert HostOptions.from_settings(Path("/var/agent"), policy).disk_paths == ("/var/agent", *paths, "/models/llama")
