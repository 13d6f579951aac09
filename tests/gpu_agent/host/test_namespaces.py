from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from gpu_agent.host.namespaces import Namespaces
from gpu_agent.host.proc import PROC
from gpu_agent.host.processes import ProcessMap
from gpu_agent.host.watch import HostOptions, HostWatch
from tests.gpu_agent.host.proc_tree import ProcTree
from wire.snapshot import NodeEngine

ADDRESS, PORT = "198.51.100.7", 8000
# Loopback comes up and gets the address; then a server listens at it.
POD = f"""
import ctypes, fcntl, os, socket, struct, sys, time
CLONE_NEWNET, CLONE_NEWUSER, SIOCSIFADDR, SIOCSIFFLAGS, IFF_UP = 0x40000000, 0x10000000, 0x8916, 0x8914, 1
unshare = ctypes.CDLL(None).unshare
if unshare(CLONE_NEWNET) and unshare(CLONE_NEWNET | CLONE_NEWUSER):
    print("refused", flush=True)
    sys.exit()
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))
    address = struct.pack("=H2x4s8x", socket.AF_INET, socket.inet_aton("{ADDRESS}"))
    fcntl.ioctl(control, SIOCSIFADDR, struct.pack("16s16s", b"lo:1", address))
listener = socket.create_server(("{ADDRESS}", {PORT}))
client = socket.create_connection(("{ADDRESS}", {PORT}))
print("listens", flush=True)
time.sleep(600)
"""


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def tree(tmp_path):
    tree = ProcTree(tmp_path)
    tree.process(1, "init", 0)
    tree.process(90, "agent")
    (tmp_path / "self").symlink_to("90")
    for pid in (1, 90):
        join(tree, pid, "net:[1]")
    return tree


def join(tree, pid, namespace, *addresses):
    folder = tree.root / str(pid)
    (folder / "ns").mkdir()
    (folder / "ns/net").symlink_to(namespace)
    (folder / "net").mkdir()
    leaves = "".join(f"     |-- {address}\n        /32 host LOCAL\n" for address in addresses)
    (folder / "net/fib_trie").write_text(f"Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.0\n        /8 link\n{leaves}")
    (folder / "net/if_inet6").write_text("fd000000000000000000000000000042 04 40 00 82     eth0\n" if addresses else "")


def test_addresses_are_found_in_the_namespaces_of_other_processes(tree, clock):
    tree.process(100, "pause")
    join(tree, 100, "net:[2]", "10.0.0.1", "127.0.0.1")
    tree.process(101, "pause")
    join(tree, 101, "net:[3]", "10.0.0.2")
    found = Namespaces(tree.root, clock).of({"10.0.0.1", "10.0.0.2", "10.0.0.0", "10.0.0.3"})
    assert found == {"10.0.0.1": tree.root / "100", "10.0.0.2": tree.root / "101"}
    assert Namespaces(tree.root, clock).of({"fd00::42"}).keys() == {"fd00::42"}


def test_a_pod_that_is_gone_is_forgotten_and_its_next_one_found_within_a_minute(tree, clock):
    namespaces = Namespaces(tree.root, clock)
    tree.process(100, "pause", started_ticks=10)
    join(tree, 100, "net:[2]", "10.0.0.1")
    assert namespaces.of({"10.0.0.1"})
    tree.process(100, "other", started_ticks=20)
    assert namespaces.of({"10.0.0.1"}) == {}
    clock.now = 60
    assert namespaces.of({"10.0.0.1"}) == {"10.0.0.1": tree.root / "100"}


def test_an_agent_that_sees_only_itself_finds_none(tree, clock):
    assert Namespaces(tree.root, clock).of({"10.0.0.1"}) == {}


def test_a_real_engine_in_a_network_namespace_of_its_own_is_seen():
    with subprocess.Popen([sys.executable, "-c", POD], stdout=subprocess.PIPE, text=True) as pod:
        assert pod.stdout is not None
        try:
            said = pod.stdout.readline().strip()
            if said == "refused":
                pytest.skip("needs the right to make a network namespace")
            assert said == "listens"
            processes = ProcessMap()
            engines = {"e1": NodeEngine(f"http://{ADDRESS}:{PORT}", "vllm", "short", "llama")}
            host = HostWatch(HostOptions(15, (), PROC), processes)
            found = {(sample.name, *sample.labels.values()): sample.value for sample in asyncio.run(host.look(engines))}
            assert host.problems == {}
            assert found["headworks_engine_connections", "e1", "established"] == 1
            assert found["headworks_engine_connections", "e1", "backlog"] == 1
            assert processes.pids("e1") == {pod.pid}
        finally:
            pod.kill()
