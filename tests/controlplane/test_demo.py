"""`headworks demo`, as far as it goes without a whole fleet; `tests/test_demo.py` runs one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from controlplane.demo.fleet import Fleet
from controlplane.demo.ports import FIRST_PORT_MAX, Ports
from controlplane.demo.run import DemoRuns, fresh_directory
from controlplane.processes import Supervisor
from tests.demo import DEMO, first_of_free_ports
from tests.services import Process


@pytest.mark.parametrize("which", ["web", "gateway", "receiver", "engine"])
def test_a_demo_whose_port_is_taken_starts_nothing_and_leaves_the_other_ones_data(tmp_path: Path, which: str) -> None:
    first = first_of_free_ports()
    port = first + {"web": 0, "gateway": 1, "receiver": 2, "engine": 12}[which]
    with socket.create_server(("127.0.0.1", port)):
        others = tmp_path / f".headworks/demo-{first}/control-plane/headworks.sqlite3"
        others.parent.mkdir(parents=True)
        others.write_text("of a demo that runs")
        environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
        refused = subprocess.run(
            [*DEMO, str(first)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
    assert refused.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in refused.stderr
    assert "--port" in refused.stderr
    assert others.read_text() == "of a demo that runs"


def test_it_says_that_it_stops_and_ends_well(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(Path.cwd())}
    argv = [*DEMO, str(first_of_free_ports())]
    log = tmp_path / "demo.log"
    with Process(argv, log=log, environment=environment, cwd=tmp_path, stop_signal=signal.SIGINT) as demo:
        demo.wait_until(lambda: "Starting" in demo.log_tail(), "the start")
        assert demo.stop(30) == 0
        assert demo.log_tail().splitlines()[-2:] == ["Stopping …", "Stopped"]


def test_one_that_is_still_starting_keeps_its_directory_before_it_listens(tmp_path: Path) -> None:
    directory = tmp_path / "demo-1"
    with fresh_directory(directory):
        (directory / "database").touch()
        with pytest.raises(DemoRuns, match=str(directory)), fresh_directory(directory):
            pass
        assert (directory / "database").exists()
    with fresh_directory(directory):
        assert list(directory.iterdir()) == []


@pytest.mark.parametrize("port", ["0", "65501", "http"])
def test_a_port_that_leaves_no_room_for_the_others_is_refused_by_name(port: str) -> None:
    refused = subprocess.run([*DEMO, port], capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 2
    assert "argument --port: give a whole number from 1 to 65500" in refused.stderr


def test_the_highest_port_of_the_last_demo_is_one() -> None:
    ports = Ports.following(FIRST_PORT_MAX)
    assert max(ports) <= 65_535


def test_only_when_asked_does_it_use_the_servers_of_the_environment(tmp_path: Path) -> None:
    servers = {
        "HEADWORKS_DATABASE_URL",
        "HEADWORKS_REDIS_URL",
        "HEADWORKS_PROMETHEUS_URL",
        "HEADWORKS_REMOTE_WRITE_URL",
    }
    embedded = Fleet(tmp_path, Ports.free(), Supervisor()).environment
    assert {name: embedded.get(name) for name in servers} == dict.fromkeys(servers, "")
    assert not servers & Fleet(tmp_path, Ports.free(), Supervisor(), "environment").environment.keys()
