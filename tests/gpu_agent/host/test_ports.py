from __future__ import annotations

import socket
from pathlib import Path

import pytest

from gpu_agent.host.ports import engine_places, is_own_address
from wire.snapshot import NodeEngine

PROC = Path("/proc")


def places(pods=None, **urls):
    """`pods`: addresses of other network namespaces, with a process in each."""
    engines = {name: NodeEngine(url, "vllm", "short", "llama") for name, url in urls.items()}
    folders = {address: PROC / str(pid) for address, pid in (pods or {}).items()}
    return engine_places(
        engines, PROC, lambda addresses: {a: folders[a] for a in addresses & folders.keys()}, lambda h: h[:3] != "10."
    )


def test_the_port_is_that_of_the_url_or_of_its_scheme():
    found = places(a="http://127.0.0.1:8000", b="http://node-1", c="https://[::1]", d="http://node-1:8001")
    assert found.by_engine == {"a": (PROC, 8000), "b": (PROC, 80), "c": (PROC, 443), "d": (PROC, 8001)}
    assert not found.problems


def test_engines_of_pods_are_in_their_namespaces_at_the_same_port():
    found = places({"10.0.0.1": 71, "10.0.0.2": 72}, a="http://10.0.0.1:8000", b="http://10.0.0.2:8000")
    assert found.by_engine == {"a": (PROC / "71", 8000), "b": (PROC / "72", 8000)}


def test_what_cannot_be_told_is_said():
    found = places(pod="http://10.9.8.7:8000", a="http://127.0.0.1:8001", b="http://127.0.0.2:8001", c="http://x:1")
    assert found.by_engine == {"c": (PROC, 1)}
    assert found.problems["pod"] == "10.9.8.7 is an address of no network namespace that is seen here"
    assert found.problems["a"] == found.problems["b"] == "several engines are configured at port 8001"


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("198.51.100.7", False), ("2001:db8::1", False), (socket.gethostname(), True), ("gpu", True)],
)
def test_own_addresses_are_known_without_asking_dns(host, own):
    assert is_own_address(host) is own
