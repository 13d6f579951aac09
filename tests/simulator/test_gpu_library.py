"""The simulated libnvidia-ml.so.1, called through nvidia-ml-py as its users do."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.gpu import build as gpu_build
from simulator.gpu import fault
from simulator.gpu.state import Process, StateFile, healthy_machine
from tests.services import in_ci, wait_for

# Calls every function that the library has, over a machine with each kind of GPU, and prints what came back.
EVERY_CALL = Path(__file__).with_name("gpu_every_call.py")


def needs_compiler():
    if shutil.which("cc") is None:
        (pytest.fail if in_ci() else pytest.skip)("needs cc: apt-get install gcc")


@pytest.fixture(scope="session")
def library_folder(tmp_path_factory):
    needs_compiler()
    return gpu_build.build(tmp_path_factory.mktemp("fake-nvml")).parent


@pytest.fixture
def state(tmp_path):
    file = StateFile(tmp_path / "gpus.json")
    file.create(healthy_machine(3))
    return file


class Caller:
    """A process with the library loaded: one line of Python with `n` as pynvml and `h` as GPU 0's handle, at a time."""

    LOOP = (
        "import sys, pynvml as n\n"
        "for line in sys.stdin:\n"
        "    try:\n"
        "        print(repr(eval(line)), flush=True)\n"
        "    except n.NVMLError as error:\n"
        "        print(type(error).__name__, flush=True)\n"
    )

    def __init__(self, folder, state):
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.LOOP],
            env={**os.environ, "LD_LIBRARY_PATH": str(folder), "HEADWORKS_FAKE_NVML_STATE": str(state.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self, line):
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def __call__(self, line):
        self.begin(line)
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@pytest.fixture
def call(library_folder, state):
    caller = Caller(library_folder, state)
    yield caller
    caller.process.kill()
    caller.process.communicate()


H0 = "n.nvmlDeviceGetHandleByIndex(0)"


@pytest.fixture
def opened(call):
    assert call("n.nvmlInit()") == "None"
    return call


def test_it_needs_to_be_initialised(call):
    assert call("n.nvmlDeviceGetCount()") == "NVMLError_Uninitialized"
    assert call("n.nvmlInit()") == "None"
    assert call("n.nvmlDeviceGetCount()") == "3"
    assert call("n.nvmlShutdown()") == "None"
    assert call("n.nvmlDeviceGetCount()") == "NVMLError_Uninitialized"


def test_without_a_state_file_no_driver_is_loaded(call, state):
    state.path.unlink()
    assert call("n.nvmlInit()") == "NVMLError_DriverNotLoaded"


def test_values_follow_the_file_while_it_changes(opened, state):
    assert opened(f"n.nvmlDeviceGetTemperature({H0}, 0)") == "30"
    with state.change() as machine:
        machine.gpus[0].values["temperature_celsius"] = 71
    assert opened(f"n.nvmlDeviceGetTemperatureV({H0}, 0)") == "71"


@pytest.mark.parametrize("damage", ["half", "empty", "other", "huge", "fraction", "deep"])
def test_a_damaged_file_leaves_the_last_whole_one_standing(opened, state, damage):
    whole = state.path.read_bytes()
    damaged = {
        "half": whole[: len(whole) // 2],
        "empty": b"",
        "other": b'{"format": 2, "gpus": []}',
        "huge": b"[" + b" " * (5 << 20) + b"]",
        "fraction": whole.replace(b'"temperature_celsius":30', b'"temperature_celsius":30.5'),
        "deep": b"[" * 100_000,
    }[damage]
    assert damaged != whole
    state.path.write_bytes(damaged)
    assert opened(f"n.nvmlDeviceGetTemperature({H0}, 0)") == "30"
    state.path.write_bytes(whole.replace(b'"temperature_celsius":30', b'"temperature_celsius":44'))
    assert opened(f"n.nvmlDeviceGetTemperature({H0}, 0)") == "44"


def test_a_lost_gpu_is_lost_alone(opened, state):
    with state.change() as machine:
        fault.lose(machine, 0)
    assert opened(f"n.nvmlDeviceGetPowerUsage({H0})") == "NVMLError_GpuIsLost"
    assert opened("n.nvmlDeviceGetPowerUsage(n.nvmlDeviceGetHandleByIndex(1))") == "76000"


def test_a_call_on_a_hung_gpu_ignores_sigterm_and_returns_once_the_gpu_is_back(opened, state):
    with state.change() as machine:
        fault.hang(machine, 0)
    opened.begin(f"n.nvmlDeviceGetPowerUsage({H0})")
    status = Path(f"/proc/{opened.process.pid}/status")

    def blocked_signals():
        (mask,) = re.findall(r"SigBlk:\s*(\w+)", status.read_text())
        return int(mask, 16)

    wait_for(lambda: blocked_signals() & 1 << 14, 10, "SIGTERM to be blocked")
    opened.process.terminate()
    with state.change() as machine:
        fault.recover(machine, 0)
    # The signal was only held back: it ends the process as soon as the call is over.
    assert opened.process.wait(10) == -15


def test_xids_are_delivered_once_in_order_from_registration_on(opened, state):
    with state.change() as machine:
        fault.throw_xid(machine, 0, 13)
    assert opened("[globals().__setitem__('s', n.nvmlEventSetCreate())]") == "[None]"
    assert opened(f"n.nvmlDeviceRegisterEvents({H0}, n.nvmlEventTypeXidCriticalError, s)") == "None"
    assert opened("n.nvmlEventSetWait_v2(s, 0)") == "NVMLError_Timeout"
    for xid in (31, 31, 79):
        with state.change() as machine:
            fault.throw_xid(machine, 0, xid)
    assert [opened("n.nvmlEventSetWait_v2(s, 1000).eventData") for _ in range(3)] == ["31", "31", "79"]
    assert opened("n.nvmlEventSetWait_v2(s, 0)") == "NVMLError_Timeout"
    with state.change() as machine:
        fault.lose(machine, 0)
        fault.throw_xid(machine, 0, 79)
    assert opened("n.nvmlEventSetWait_v2(s, 0).eventData") == "79"
    assert opened("n.nvmlEventSetWait_v2(s, 0)") == "NVMLError_GpuIsLost"


def test_with_mig_on_instances_are_devices_of_their_own(opened, state):
    assert opened(f"n.nvmlDeviceGetMigMode({H0})") == "[0, 0]"
    with state.change() as machine:
        fault.slice_mig(machine, 0)
    assert opened(f"n.nvmlDeviceGetUtilizationRates({H0})") == "NVMLError_NotSupported"
    instance = f"n.nvmlDeviceGetMigDeviceHandleByIndex({H0}, 6)"
    written = state.read().gpus[0].mig.instances[6]
    assert opened(f"n.nvmlDeviceGetUUID({instance})") == repr(written.uuid)
    assert opened(f"n.nvmlDeviceGetGpuInstanceId({instance})") == str(written.gpu_instance_id)
    assert opened(f"n.nvmlDeviceGetName({instance})") == "'Simulated NVIDIA H200 MIG 1g.18gb'"
    assert opened(f"n.nvmlDeviceGetMemoryInfo({instance}).total") == str(written.memory_total_bytes)
    assert opened(f"n.nvmlDeviceGetMigDeviceHandleByIndex({H0}, 7)") == "NVMLError_NotFound"


def test_every_field_of_the_file_reaches_callers_of_nvml(library_folder, state):
    """Each value is a number of its own, so that none can stand for another."""
    with state.change() as machine:
        names = [name for name in machine.gpus[0].values if not name.startswith(("remap_", "memory_"))]
        for number, name in enumerate(names, start=101):
            machine.gpus[0].values[name] = number
        machine.gpus[0].processes = [Process(4711, 2**30), Process(4712)]
    done = run_every_call(library_folder, state)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)["0"]
    flat = {repr(value) for each in said.values() for value in (each if isinstance(each, list) else [each])}
    # Thousandths are told as percent; links that are down, link by link.
    written = [number / 10 if "per_mille" in name else number for number, name in enumerate(names, start=101)]
    unheard = [
        name
        for number, name in zip(written, names, strict=True)
        if not {repr(number), repr(float(number))} & flat and name != "nvlink_down_mask"
    ]
    assert unheard == []
    assert said["processes"] == [[4711, 2**30], [4712, None]]


def test_links_that_are_down_and_negative_margins_are_told(opened, state):
    with state.change() as machine:
        machine.gpus[0].values |= {"nvlink_down_mask": 0b10, "thermal_margin_celsius": -3}
    assert [opened(f"n.nvmlDeviceGetNvLinkState({H0}, {link})") for link in (0, 1, 18)] == [
        "1", "0", "NVMLError_InvalidArgument",
    ]  # fmt: skip
    assert opened(f"n.nvmlDeviceGetMarginTemperature({H0})") == "-3"
    assert opened(f"n.nvmlDeviceGetFieldValues({H0}, [193])[0].value.sllVal") == "-8"


def test_a_call_about_a_pair_hangs_with_either(opened, state):
    """A driver may wait for the GPU that hangs, whichever was asked."""
    with state.change() as machine:
        fault.hang(machine, 1)
    opened.begin(f"n.nvmlDeviceGetTopologyCommonAncestor({H0}, n.nvmlDeviceGetHandleByIndex(1))")
    status = Path(f"/proc/{opened.process.pid}/status")
    wait_for(lambda: int(re.findall(r"SigBlk:\s*(\w+)", status.read_text())[0], 16) & 1 << 14, 10, "the call to hang")
    with state.change() as machine:
        fault.recover(machine, 1)
    assert opened.process.stdout is not None
    assert opened.process.stdout.readline().strip() in ("40", "50")


def run_every_call(folder, state, **environment):
    return subprocess.run(
        [sys.executable, EVERY_CALL],
        env={
            **os.environ, "LD_LIBRARY_PATH": str(folder), "HEADWORKS_FAKE_NVML_STATE": str(state.path), **environment,
        },
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


def test_sanitizers_find_nothing_in_any_call(tmp_path, state):
    needs_compiler()
    runtimes = []
    for name in ("libasan.so", "libubsan.so"):
        found = subprocess.run(["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        runtimes.append(found.stdout.strip())
    if not all(os.path.isabs(runtime) for runtime in runtimes):
        pytest.skip("this compiler has no sanitizers")
    flags = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    folder = gpu_build.build(tmp_path / "library", extra_flags=flags).parent
    with state.change() as machine:
        fault.slice_mig(machine, 1)
        fault.lose(machine, 2)
        machine.gpus[0].name = 'Simulated \u00e9\u20ac "quoted" \\ name' * 9
    # The interpreter itself keeps memory to its end: leaks are not looked for.
    done = run_every_call(folder, state, LD_PRELOAD=" ".join(runtimes), ASAN_OPTIONS="detect_leaks=0")
    assert done.returncode == 0, done.stderr
    assert "runtime error" not in done.stderr
    assert json.loads(done.stdout)["2"]["nvmlDeviceGetPowerUsage"] == "NVMLError_GpuIsLost"


def test_only_nvmls_names_can_be_seen(library_folder):
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", library_folder / gpu_build.LIBRARY], capture_output=True, text=True, check=True
    )
    names = [line.split()[-1] for line in listed.stdout.splitlines()]
    assert names
    assert [name for name in names if not name.startswith("nvml")] == []


def test_without_a_compiler_building_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_build.main([str(tmp_path / "out")]) == 3
    assert "install gcc" in capsys.readouterr().err


def test_a_compiler_that_refuses_is_quoted(tmp_path, monkeypatch, capsys):
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'no space left' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert gpu_build.main([str(tmp_path / "out")]) == 1
    assert "no space left" in capsys.readouterr().err
