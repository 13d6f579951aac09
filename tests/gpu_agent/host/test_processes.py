from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import pytest

from gpu_agent.host import processes
from gpu_agent.host.processes import ProcessMap
from gpu_agent.host.sockets import read_sockets
from tests.gpu_agent.host.proc_tree import BOOT_SECONDS, ProcTree
from tests.services import accepts, free_port, wait_for

LISTENS_AND_FORKS = """
import os, socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
child = os.fork()
if child:
    print(os.getpid(), child, flush=True)
time.sleep(600)
"""
WITHOUT_PRIVILEGE = """
import os, sys
from gpu_agent.host.proc import PROC
from gpu_agent.host.processes import ProcessMap
from gpu_agent.host.sockets import read_sockets
port = int(sys.argv[1])
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
found = ProcessMap()
found.refresh({"e1": "vllm"}, {"e1": read_sockets(PROC, [port], range(0)).by_port[port].listening})
print(found.problems["e1"])
"""


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def tree(tmp_path):
    tree = ProcTree(tmp_path)
    tree.process(1, "init", 0)
    tree.process(50, "sshd")
    return tree


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def found(tree, clock):
    return ProcessMap(tree.root, clock)


def test_a_real_engine_and_what_it_started_are_found_until_it_ends():
    port = free_port()
    found = ProcessMap()

    def look():
        sockets = read_sockets(found._proc, [port], range(0))
        found.refresh({"e1": "vllm"}, {"e1": sockets.by_port[port].listening})

    begun_ms = time.time() * 1000
    command = [sys.executable, "-c", LISTENS_AND_FORKS, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as engine:
        assert engine.stdout is not None
        try:
            pids = {int(pid) for pid in engine.stdout.readline().split()}
            wait_for(lambda: accepts(port), 20, "the port")
            look()
            assert found.pids("e1") == pids
            assert {found.engine_of(pid) for pid in pids} == {"e1"}
            assert found.engine_of(os.getpid()) is None
            assert found.command_line("e1") == command
            started_ms = found.started_at_ms("e1")
            # The kernel tells the time of the boot to the second.
            assert started_ms is not None
            assert abs(started_ms - begun_ms) < 3000
        finally:
            os.killpg(engine.pid, 9)

    def gone():
        look()
        return not found.pids("e1")

    wait_for(gone, 20, "the end of both")
    assert (found.command_line("e1"), found.started_at_ms("e1"), dict(found.problems)) == (None, None, {})


def test_cores_and_workers_that_were_forked_off_are_told_by_their_titles(tree, found):
    tree.process(100, "vllm", started_ticks=10, sockets=["7"])
    tree.process(101, "VLLM::EngineCor", 100, started_ticks=20, sockets=["7"])
    tree.process(102, "VLLM::Worker_TP", 101, started_ticks=30, sockets=["7"])
    tree.process(103, "VLLM::APIServer", 100, started_ticks=40, sockets=["7"])
    tree.process(104, "python3", 100, started_ticks=40)
    found.refresh({"e1": "vllm"}, {"e1": ["7"]})
    assert found.engines["e1"].roles == {100: "api", 101: "core", 102: "worker", 103: "api", 104: "worker"}
    assert found.engine_of(50) is None


def test_shards_that_a_launcher_started_beside_the_router_belong_to_the_engine(tree, found):
    tree.process(100, "text-generation")
    tree.process(101, "text-generation", 100, sockets=["7"])
    tree.process(102, "text-generation", 100)
    tree.process(103, "sh")
    found.refresh({"e1": "tgi"}, {"e1": ["7"]})
    assert found.pids("e1") == {100, 101, 102}
    assert found.engines["e1"].roles[101] == "api"
    assert found.engines["e1"].roles[102] == "core"


def test_an_engine_that_another_started_is_its_own(tree, found):
    tree.process(100, "ollama", sockets=["7"])
    tree.process(101, "llama-server", 100, sockets=["8"])
    tree.process(102, "worker", 101)
    found.refresh({"outer": "ollama", "inner": "llamacpp"}, {"outer": ["7"], "inner": ["8"]})
    assert found.pids("outer") == {100}
    assert found.pids("inner") == {101, 102}


def test_a_process_that_comes_later_is_found_and_one_under_a_used_id_is_not(tree, found, clock):
    tree.process(100, "vllm", started_ticks=10, sockets=["7"])
    found.refresh({"e1": "vllm"}, {"e1": ["7"]})
    tree.process(101, "python3", 100)
    found.refresh({"e1": "vllm"}, {"e1": ["7"]})
    assert found.pids("e1") == {100, 101}
    for pid in (100, 101):
        tree.ends(pid)
    tree.process(100, "cron", started_ticks=900)
    clock.now += 3600
    found.refresh({"e1": "vllm"}, {"e1": ["8"]})
    assert found.engine_of(100) is None


def test_a_socket_that_nobody_was_found_to_hold_is_searched_for_once_a_minute_at_most(tree, found, clock):
    found.refresh({"e1": "vllm"}, {"e1": ["7"]})
    tree.process(100, "vllm", sockets=["7"])
    clock.now = 59
    found.refresh({"e1": "vllm"}, {"e1": ["7"]})
    assert found.pids("e1") == frozenset()
    assert found.problems.keys() == {"e1"}
    clock.now = 60
    found.refresh({"e1": "vllm"}, {"e1": ["7"]})
    assert found.pids("e1") == {100}
    assert not found.problems


def test_an_engine_that_is_restarted_again_and_again_is_found_within_seconds(tree, found, clock):
    for restart in range(6):
        tree.process(100 + restart, "vllm", sockets=[str(7 + restart)])
        found.refresh({"e1": "vllm"}, {"e1": [str(7 + restart)]})
        assert found.pids("e1") == {100 + restart}
        tree.ends(100 + restart)
        clock.now += 5


def test_searches_for_new_sockets_are_some_seconds_apart(tree, found, clock):
    found.refresh({"e1": "vllm"}, {"e1": ["7"]})
    tree.process(101, "vllm", sockets=["8"])
    clock.now = 4
    found.refresh({"e1": "vllm", "e2": "vllm"}, {"e1": ["7"], "e2": ["8"]})
    assert found.pids("e2") == frozenset()
    assert found.problems.keys() == {"e1"}, "nobody has searched for the other yet"
    clock.now = 5
    found.refresh({"e1": "vllm", "e2": "vllm"}, {"e1": ["7"], "e2": ["8"]})
    assert found.pids("e2") == {101}


def test_an_engine_in_another_pid_namespace_is_unknown_with_what_would_help(tree, found):
    found.refresh({"e1": "vllm"}, {"e1": ["7"]})
    assert "hostPID" in found.problems["e1"]
    assert found.command_line("e1") is None


def test_files_that_only_a_privileged_reader_may_see_are_said(tree, found, monkeypatch):
    def denied(_proc, pid):
        raise PermissionError(13, "Permission denied", str(pid))

    monkeypatch.setattr(processes, "open_sockets", denied)
    found.refresh({"e1": "vllm"}, {"e1": ["7"]})
    assert "SYS_PTRACE" in found.problems["e1"]


def test_a_reader_without_privilege_is_told_what_it_lacks():
    if os.getuid() != 0:
        pytest.skip("needs root, to give it up")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-c", WITHOUT_PRIVILEGE, str(listener.getsockname()[1])]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert "SYS_PTRACE" in ended.stdout


def test_the_manager_that_holds_a_services_socket_is_no_part_of_it(tree, found, clock):
    tree.process(1, "systemd", 0, sockets=["7"])
    found.refresh({"e1": "vllm"}, {"e1": ["7"]})
    assert found.pids("e1") == frozenset()
    assert not found.problems, "it was not started yet"
    tree.process(100, "vllm", sockets=["7"])
    clock.now = 60
    found.refresh({"e1": "vllm"}, {"e1": ["7"]})
    assert found.pids("e1") == {100}


def test_a_forwarder_of_a_container_is_no_engine(tree, found):
    tree.process(100, "docker-proxy", sockets=["7"])
    found.refresh({"e1": "vllm"}, {"e1": ["7"]})
    assert found.engine_of(100) is None
    assert "docker-proxy" in found.problems["e1"]


def test_the_command_line_is_bounded_and_its_start_does_not_move_with_the_clock(tree, found):
    words = ["vllm", *(f"--option-{number}" for number in range(20_000))]
    tree.process(100, "vllm", started_ticks=os.sysconf("SC_CLK_TCK") * 5, sockets=["7"], words=words)
    for boot in (BOOT_SECONDS, BOOT_SECONDS + 100):
        tree.boot(boot)
        found.refresh({"e1": "vllm"}, {"e1": ["7"]})
        assert found.command_line("e1") == words[:1000]
        assert found.started_at_ms("e1") == (BOOT_SECONDS + 5) * 1000


def test_names_of_processes_may_hold_anything(tree, found):
    tree.process(100, "a) S 1 (b\n", sockets=["7"])
    found.refresh({"e1": "vllm"}, {"e1": ["7"]})
    assert found.pids("e1") == {100}
    assert found.engines["e1"].stats[100].name == "a) S 1 (b\n"
