from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_agent.nvml.protocol import LINE_LIMIT_BYTES, Answer, decode_told
from simulator.gpu import fault
from tests.services import wait_for

CHILD = [sys.executable, "-m", "gpu_agent.nvml.child"]


@pytest.fixture
def child(state):
    process = subprocess.Popen(
        [*CHILD, "--simulated", state.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        yield process
        process.kill()


def test_it_ends_with_its_agent_though_a_gpu_hangs(child, state):
    assert b'"type":"ready"' in child.stdout.readline()
    with state.change() as machine:
        fault.hang(machine, 0)
    child.stdin.write(b'{"number":1,"gpu":0,"polls":["fast","slow"]}\n{"number":2,"gpu":1,"polls":["fast"]}\n')
    child.stdin.flush()
    line = b""
    while b'"answer"' not in line:
        line = child.stdout.readline()
    # GPU 0 was asked first, and is silent.
    assert b'"number":2' in line
    child.stdin.close()
    assert child.wait(10) == 0


def test_it_tells_of_xids_before_it_was_asked_anything(child, state):
    os.set_blocking(child.stdout.fileno(), False)
    told = bytearray()

    def tells(words: bytes) -> bool:
        told.extend(child.stdout.read() or b"")
        return words in told

    wait_for(lambda: tells(b'"type":"watching","gpu":1'), 10, "GPU 1 being watched")
    with state.change() as machine:
        fault.throw_xid(machine, 1, 79)
    wait_for(lambda: tells(b'"type":"xid","gpu":1,"xid":79'), 10, "the XID")
    assert told.startswith(b'{"type":"ready"')


def test_it_ends_with_its_agent_though_nvml_hangs_while_it_opens(state):
    with state.change() as machine:
        machine.init_hangs = True
    done = subprocess.run([*CHILD, "--simulated", state.path], input=b"", timeout=30, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.parametrize(
    "line",
    [
        b"no json",
        b'{"number":1,"gpu":99,"polls":["fast","slow"]}',
        b'{"number":1,"gpu":0,"polls":["hourly"]}',
        b'{"number":1,"gpu":0,"polls":[[]]}',
        b"\xff",
        b"[" * 60_000,
    ],
)
def test_what_is_no_ask_is_passed_over_and_the_next_one_answered(child, line):
    assert b'"type":"ready"' in child.stdout.readline()
    child.stdin.write(line + b'\n{"number":7,"gpu":1,"polls":["fast"]}\n')
    child.stdin.flush()
    while b'"number":7' not in child.stdout.readline():
        pass


def test_an_answer_holds_no_more_processes_than_a_line_has_room_for(child, state):
    machine = json.loads(state.path.read_bytes())
    machine["gpus"][0]["processes"] = [
        {"pid": 4_000_000_000 + number, "memory_bytes": 2**40 + number} for number in range(600)
    ]
    state.path.write_bytes(json.dumps(machine).encode())
    assert b'"type":"ready"' in child.stdout.readline()
    child.stdin.write(b'{"number":1,"gpu":0,"polls":["fast","slow","once","processes"]}\n')
    child.stdin.flush()
    line = b""
    while b'"answer"' not in line:
        line = child.stdout.readline()
    answer = decode_told(line)
    assert isinstance(answer, Answer)
    assert len(line) < LINE_LIMIT_BYTES / 2
    # Those that hold most.
    assert [pid for pid, _ in answer.processes] == [4_000_000_000 + number for number in range(599, 87, -1)]


def test_it_ends_where_nobody_hears_it_any_more(child):
    assert b'"type":"ready"' in child.stdout.readline()
    child.stdout.close()
    child.stdin.write(b'{"number":1,"gpu":1,"polls":["fast"]}\n')
    child.stdin.flush()
    assert child.wait(10) == 0


def test_it_dies_where_one_of_its_threads_does_so_that_another_takes_its_place(child, state):
    assert b'"type":"ready"' in child.stdout.readline()
    with state.change() as machine:
        # A GPU that is gone altogether is none that its thread can go on with.
        del machine.gpus[1:]
    child.stdin.write(b'{"number":1,"gpu":2,"polls":["fast"]}\n')
    child.stdin.flush()
    assert child.wait(10) == 1
    assert b"Invalid Argument" in child.stderr.read()


def test_other_options_are_refused_with_those_that_there_are():
    done = subprocess.run([*CHILD, "--driver", "x"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "--library PATH | --simulated PATH" in done.stderr


def test_it_holds_only_what_it_uses():
    """Each node runs one: an event loop or typed messages would cost it megabytes for nothing."""
    listed = subprocess.run(
        [
            sys.executable, "-c",
            "import sys, gpu_agent.nvml.child, gpu_agent.nvml.library as library; library._import_pynvml();"
            "print(*sys.modules); from ctypes.util import find_library; find_library('c')",
        ],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert not {"asyncio", "aiohttp", "inspect", "msgspec", "subprocess", "tempfile"} & set(listed)
    assert "pynvml" in listed


def test_the_library_that_is_named_is_the_one_that_is_used(fake_nvml, state, tmp_path):
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "nvml.so").write_bytes(fake_nvml.read_bytes())
    process = subprocess.Popen(
        [*CHILD, "--library", other / "nvml.so"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "LD_LIBRARY_PATH": ""},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert b'"simulated"' in process.stdout.readline()
        maps = Path(f"/proc/{process.pid}/maps")
        wait_for(lambda: str(other / "nvml.so") in maps.read_text(), 5, "the library among those loaded")
    finally:
        process.kill()
        process.communicate()
