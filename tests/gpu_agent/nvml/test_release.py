"""NVML closed on purpose: by the agent's own word, with simulated GPUs read through the whole of it."""

from __future__ import annotations

import asyncio
import fcntl
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_agent.nvml.metrics import samples
from gpu_agent.nvml.process import NvmlChild
from gpu_agent.nvml.reader import NvmlReader
from gpu_agent.nvml.release import MAX_SECONDS, OPEN_FILE, REQUEST_FILE, NotReleased, NvmlReleased, Releases
from gpu_agent.nvml.reports import gpu_reports
from gpu_agent.nvml.xids import XID_RULES
from simulator.gpu import fault
from tests.gpu_agent.nvml.polling import INTERVAL_SECONDS, read_until, states

HEALTHY = ["ok", "ok", "ok"]


def works(readings):
    return states(readings) == HEALTHY and all(gpu.fields for gpu in readings.gpus)


def is_locked(path):
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


async def test_while_nvml_is_released_nothing_has_it_open_no_series_is_left_and_no_event_told(
    collect, state, source_options, tmp_path
):
    watched = await collect(**source_options)
    await read_until(watched, works, "three healthy GPUs")
    pid = watched.collector.nvml.child_pid
    assert is_locked(tmp_path / "agent" / OPEN_FILE)
    before = await watched.collector.read()
    await watched.collector.release(300)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not is_locked(tmp_path / "agent" / OPEN_FILE)
    # Longer than after which a GPU that does not answer is unresponsive.
    deadline = asyncio.get_running_loop().time() + 5 * INTERVAL_SECONDS
    while asyncio.get_running_loop().time() < deadline:
        readings = await watched.collector.read()
        assert watched.collector.nvml.child_pid is None
        assert not list(samples(readings, hostname="gpu-01", rules=XID_RULES, engine_of=lambda pid: None))
        await asyncio.sleep(INTERVAL_SECONDS)
    (problem, *others) = readings.problems
    assert problem.startswith("NVML is released until 20")
    assert problem.endswith(" UTC for the control plane")
    assert all("kernel log" in other for other in others)
    reported = gpu_reports(before)
    assert gpu_reports(readings, reported) == reported, "the GPUs stay in the report as they were"
    await watched.collector.take_up()
    readings = await read_until(watched, works, "their values again")
    assert not [problem for problem in readings.problems if "NVML" in problem]
    assert watched.events == []


async def test_a_release_is_over_by_itself_after_its_time(collect, state, source_options):
    watched = await collect(**source_options)
    await read_until(watched, works, "three healthy GPUs")
    await watched.collector.release(0.3)
    assert watched.collector.nvml.child_pid is None
    await read_until(watched, works, "their values again")
    assert watched.events == []


async def test_a_gpu_keeps_its_state_while_released_and_is_recovered_by_the_reset_that_was_done_then(
    collect, state, source_options
):
    watched = await collect(**source_options)
    with state.change() as machine:
        fault.lose(machine, 1)
    await read_until(watched, lambda now: states(now) == ["ok", "lost", "ok"], "GPU 1 to be lost")
    await watched.collector.release(300)
    with state.change() as machine:
        fault.recover(machine, 1)
    assert states(await watched.collector.read()) == ["ok", "lost", "ok"]
    await watched.collector.take_up()
    await read_until(watched, works, "GPU 1 to be back")
    assert watched.kinds() == ["gpu_lost", "gpu_recovered"]


async def test_a_gpu_that_hangs_after_the_release_is_told_and_keeps_no_other_away(collect, state, source_options):
    watched = await collect(**source_options)
    await read_until(watched, works, "three healthy GPUs")
    await watched.collector.release(300)
    with state.change() as machine:
        fault.hang(machine, 1)
    await watched.collector.take_up()
    readings = await read_until(watched, lambda now: now.gpus[2].fields, "GPU 2 to be read")
    assert readings.gpus[1].released, "its first answer is not overdue yet"
    await read_until(watched, lambda now: states(now) == ["ok", "unresponsive", "ok"], "GPU 1 to be unresponsive")
    assert watched.kinds() == ["gpu_unresponsive"]


async def test_a_driver_that_is_unloaded_and_loaded_again_is_one_failure_and_one_recovery(
    collect, state, source_options
):
    """A driver is only unloaded while nothing has NVML open."""
    watched = await collect(**source_options)
    await read_until(watched, works, "three healthy GPUs")
    await watched.collector.release(300)
    with state.change() as machine:
        machine.init_result = 9
    await watched.collector.take_up()
    readings = await read_until(watched, lambda now: "Driver Not Loaded" in now.problems, "NVML to fail")
    assert states(readings) == ["unresponsive"] * 3
    assert not any(gpu.fields for gpu in readings.gpus)
    with state.change() as machine:
        machine.init_result = 0
    await read_until(watched, works, "the driver's return")
    assert watched.kinds() == ["nvml_failed", "nvml_recovered"]


async def test_a_child_that_cannot_be_ended_makes_the_release_fail_by_name_and_gpus_are_read_on(
    collect, state, source_options, monkeypatch
):
    # What SIGKILL does to a process that is stuck in the driver: nothing.
    stuck: list[NvmlChild] = []
    monkeypatch.setattr(NvmlReader, "_end", lambda self, child: stuck.append(child))
    try:
        watched = await collect(**source_options)
        await read_until(watched, works, "three healthy GPUs")
        pid = watched.collector.nvml.child_pid
        with pytest.raises(NotReleased, match=rf"hang in the driver and cannot be ended: {pid}$"):
            await watched.collector.release(300)
        await read_until(watched, works, "another child")
    finally:
        monkeypatch.undo()
        await watched.collector.stop()
        for child in stuck:
            child.kill()
            assert await child.ended(10)


async def test_where_no_gpus_are_read_there_is_nothing_to_release(collect):
    watched = await collect(source="none")
    await watched.collector.release(300)
    assert (await watched.collector.read()).problems[0] == "reading GPUs is switched off"
    await watched.collector.take_up()


async def test_an_agent_whose_state_folder_cannot_be_written_reads_its_gpus_all_the_same(
    collect, state, source_options, tmp_path, caplog
):
    (tmp_path / "agent").write_text("a file where the folder should be")
    watched = await collect(**source_options)
    await read_until(watched, works, "three healthy GPUs")
    assert sum("release-gpu will not see" in message for message in caplog.messages) == 1


class Clock:
    def __init__(self):
        self.seconds = 1000.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def releases(tmp_path):
    clock = Clock()
    found = Releases(tmp_path, clock)
    found.prepare()
    return found, clock


@pytest.fixture
def request_file(tmp_path):
    with (tmp_path / REQUEST_FILE).open("w+b", buffering=0) as file:
        yield file


def ask(request_file, text):
    request_file.truncate(0)
    os.pwrite(request_file.fileno(), text, 0)


def test_a_request_stands_while_its_command_holds_the_file_and_its_time_has_not_passed(releases, request_file):
    found, clock = releases
    ask(request_file, b'{"pid":4711,"until_seconds":1060}')
    assert found.now() is None, "a command that is gone asks for nothing"
    fcntl.flock(request_file, fcntl.LOCK_EX)
    first = found.now()
    assert first is not None
    assert first.says.endswith("for release-gpu (process 4711)")
    clock.seconds = 1059
    assert found.now() == first, "said in the same words all the while"
    clock.seconds = 1060
    assert found.now() is None
    clock.seconds = 1059
    fcntl.flock(request_file, fcntl.LOCK_UN)
    assert found.now() is None


def test_the_word_of_the_control_plane_does_not_end_a_commands_request(releases, request_file):
    found, _ = releases
    fcntl.flock(request_file, fcntl.LOCK_EX)
    ask(request_file, b'{"pid":4711,"until_seconds":1060}')
    found.begin(30)
    assert "control plane" in found.now().says
    found.end()
    assert "4711" in found.now().says


def test_no_release_is_longer_than_an_hour(releases):
    found, clock = releases
    found.begin(10**9)
    clock.seconds += MAX_SECONDS - 1
    assert found.now() is not None
    clock.seconds += 1
    assert found.now() is None


@given(
    st.binary(max_size=300)
    | st.sampled_from([b"{}", b"[" * 200, b'{"pid":1,"until_seconds":1e999}', b'{"pid":1,"until_seconds":-1}'])
    | st.floats(4601, allow_infinity=False).map(lambda until: b'{"pid":1,"until_seconds":%r}' % until)
)
def test_what_is_no_request_of_a_bounded_time_closes_nothing(tmp_path_factory, text):
    folder = tmp_path_factory.mktemp("state")
    found = Releases(folder, Clock())
    found.prepare()
    with (folder / REQUEST_FILE).open("w+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        ask(file, text)
        assert found.now() is None


def test_nvml_may_not_be_opened_once_a_command_has_asked_whichever_came_first(releases, request_file, tmp_path):
    found, _ = releases
    lock = found.lock()
    assert lock is not None
    assert is_locked(tmp_path / OPEN_FILE)
    os.close(lock)
    fcntl.flock(request_file, fcntl.LOCK_EX)
    ask(request_file, b'{"pid":4711,"until_seconds":1060}')
    with pytest.raises(NvmlReleased):
        found.lock()
    assert not is_locked(tmp_path / OPEN_FILE)
