"""The driver as the process that it is."""

from __future__ import annotations

import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from simulator.gpu import fault
from simulator.gpu.state import StateFile
from tests.services import wait_for


class Engine(BaseHTTPRequestHandler):
    running = 0

    def do_GET(self):
        body = f'vllm:num_requests_running{{engine="0",model_name="m"}} {type(self).running}\n'.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def engine():
    """One engine's metrics page: its address, and the class whose `running` it shows."""
    handler = type("OneEngine", (Engine,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", handler
        server.shutdown()


@pytest.fixture
def drive(tmp_path):
    """Starts the driver of four GPUs; ends it at the end."""
    started = []

    def start(*arguments):
        argv = [sys.executable, "-m", "simulator.gpu.drive", tmp_path / "gpus.json", "--gpus", "4"]
        process = subprocess.Popen([*argv, "--interval-seconds", "0.05", *arguments], stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process, StateFile(tmp_path / "gpus.json")

    yield start
    for process in started:
        process.kill()
        process.communicate()


def values(file, name):
    return [gpu.values[name] for gpu in file.read().gpus]


def test_each_gpu_follows_its_own_engine(drive, engine):
    url, handler = engine
    # Nothing listens on the discard port of this machine: the second engine is down.
    _, file = drive("--engine-url", url, "--engine-url", "http://127.0.0.1:9")
    wait_for(file.path.exists, 20, "the state file")
    wait_for(lambda: values(file, "memory_used_bytes")[0] > 0, 20, "the engine that is up to hold memory")
    assert values(file, "gpu_utilization_percent") == [0, 0, 0, 0]
    handler.running = 64
    wait_for(lambda: values(file, "gpu_utilization_percent")[0] > 80, 20, "the GPUs of the busy engine to work")
    used = values(file, "memory_used_bytes")
    assert used[0] == used[1] > 0
    assert used[2:] == [0, 0]
    assert values(file, "gpu_utilization_percent")[2:] == [0, 0]


def test_without_an_engine_the_load_wanders_and_faults_stay(drive):
    _, file = drive("--seed", "3")
    wait_for(file.path.exists, 20, "the state file")
    with file.change() as machine:
        fault.throw_xid(machine, 2, 79)
        fault.lose(machine, 2)
    before = values(file, "energy_millijoules")
    wait_for(lambda: all(map(int.__gt__, values(file, "energy_millijoules"), before)), 20, "energy to be used")
    assert (file.read().gpus[2].state, [xid.xid for xid in file.read().gpus[2].xids]) == ("lost", [79])


def test_a_file_that_is_no_state_file_is_refused(drive, tmp_path):
    (tmp_path / "gpus.json").write_text("{")
    process, _ = drive()
    assert process.wait(20) == 2
    assert "is no state file of simulated GPUs" in process.stderr.read()


def test_an_address_that_is_none_is_refused(drive):
    process, _ = drive("--engine-url", "ftp://somewhere")
    assert process.wait(20) == 2
