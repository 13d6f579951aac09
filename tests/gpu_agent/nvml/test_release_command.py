"""`headworks-agent release-gpu` as a process of its own, beside a running collector of simulated GPUs."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import sys

import pytest

from gpu_agent.nvml.release import OPEN_FILE, REQUEST_FILE
from tests.gpu_agent.nvml.polling import read_until
from tests.services import Process, wait_for


def release_gpu(tmp_path, *arguments, **environment):
    """The process. What it prints stands in its log."""
    command = [sys.executable, "-m", "gpu_agent.cli", "--state-dir", str(tmp_path / "agent"), "release-gpu"]
    return Process([*command, *arguments], log=tmp_path / "release.log", environment=environment)


def until_there_is(tmp_path, name):
    """A command that makes the file `name`.begun, and ends with exit status 3 once the test makes `name`.go."""
    begun, go = tmp_path / f"{name}.begun", tmp_path / f"{name}.go"
    return ["--", "sh", "-c", f"touch {begun}; while [ ! -e {go} ]; do sleep 0.05; done; exit 3"]


async def there_is(tmp_path, name):
    await asyncio.to_thread(wait_for, (tmp_path / name).exists, 20, name)


def has_values(readings):
    return len(readings.gpus) == 3 and all(gpu.fields for gpu in readings.gpus)


def is_released(readings):
    return any("for release-gpu (process " in problem for problem in readings.problems)


@pytest.fixture
async def watched(collect, state, fake_nvml):
    found = await collect(source="nvml", library=str(fake_nvml))
    await read_until(found, has_values, "three GPUs with values")
    return found


async def test_nvml_is_closed_while_the_command_runs_and_opened_again_after_it(watched, tmp_path):
    with release_gpu(tmp_path, *until_there_is(tmp_path, "reset")) as process:
        await there_is(tmp_path, "reset.begun")
        assert watched.collector.nvml.child_pid is None
        readings = await watched.collector.read()
        assert is_released(readings)
        assert all(gpu.released for gpu in readings.gpus)
        (tmp_path / "reset.go").touch()
        assert await asyncio.to_thread(process.wait) == 3
    await read_until(watched, has_values, "their values again")
    assert process.log.read_text() == ""
    assert watched.events == []


async def test_a_command_that_loses_its_release_gpu_keeps_nvml_closed_until_it_ends(watched, tmp_path):
    with release_gpu(tmp_path, *until_there_is(tmp_path, "reset")) as process:
        await there_is(tmp_path, "reset.begun")
        os.kill(process.pid, signal.SIGKILL)
        await asyncio.to_thread(process.wait)
        await read_until(watched, is_released, "NVML still to be released")
        assert watched.collector.nvml.child_pid is None
        (tmp_path / "reset.go").touch()
        await read_until(watched, has_values, "their values again")


async def test_what_a_command_leaves_running_does_not_keep_nvml_closed(watched, tmp_path):
    left = f"sleep 300 & echo $! > {tmp_path}/pid"
    with release_gpu(tmp_path, "--", "sh", "-c", left) as process:
        assert await asyncio.to_thread(process.wait) == 0
        try:
            await read_until(watched, has_values, "their values again")
        finally:
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


async def test_an_agent_that_starts_during_a_release_waits_for_its_end(collect, watched, fake_nvml, tmp_path):
    with release_gpu(tmp_path, *until_there_is(tmp_path, "reset")) as process:
        await there_is(tmp_path, "reset.begun")
        await watched.collector.stop()
        other = await collect(source="nvml", library=str(fake_nvml))
        assert is_released(await other.collector.read())
        assert other.collector.nvml.child_pid is None
        (tmp_path / "reset.go").touch()
        assert await asyncio.to_thread(process.wait) == 3
        await read_until(other, has_values, "their values")


async def test_a_command_that_runs_longer_than_the_limit_is_left_alone_and_nvml_is_opened(watched, tmp_path):
    with release_gpu(tmp_path, "--limit-seconds", "2", *until_there_is(tmp_path, "reset")) as process:
        await there_is(tmp_path, "reset.begun")
        await read_until(watched, has_values, "their values again")
        (tmp_path / "reset.go").touch()
        assert await asyncio.to_thread(process.wait) == 3
    assert "the limit has passed: the agent opens NVML again, though sh still runs" in process.log.read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_without_a_command_nvml_is_closed_until_it_is_ended(watched, tmp_path, number):
    with release_gpu(tmp_path) as process:
        await read_until(watched, is_released, "NVML to be released")
        await asyncio.to_thread(process.wait_until, lambda: "Ctrl-C" in process.log.read_text(), "it to say so")
        os.kill(process.pid, number)
        assert await asyncio.to_thread(process.wait) == (-number if number == signal.SIGKILL else 0)
    await read_until(watched, has_values, "their values again")


async def test_without_a_command_it_ends_by_itself_at_the_limit(watched, tmp_path):
    with release_gpu(tmp_path, "--limit-seconds", "1") as process:
        assert await asyncio.to_thread(process.wait) == 0
    await read_until(watched, has_values, "their values again")


async def test_a_second_one_is_refused_by_name_and_runs_nothing(watched, tmp_path):
    with release_gpu(tmp_path, *until_there_is(tmp_path, "first")):
        await there_is(tmp_path, "first.begun")
        with release_gpu(tmp_path, "--", "touch", str(tmp_path / "second")) as second:
            assert await asyncio.to_thread(second.wait) == 2
        assert "another release-gpu runs on this node: wait for its end" in second.log.read_text()
        assert is_released(await watched.collector.read()), "the first one's release stands"
        (tmp_path / "first.go").touch()
    assert not (tmp_path / "second").exists()


def test_nvml_that_is_not_let_go_of_is_said_and_the_command_is_not_run(tmp_path):
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / REQUEST_FILE).touch()
    # As a child holds it that hangs in the driver.
    with (tmp_path / "agent" / OPEN_FILE).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        waiting = {"HEADWORKS_AGENT_RELEASE_WAIT_SECONDS": "1"}
        with release_gpu(tmp_path, "--", "touch", str(tmp_path / "ran"), **waiting) as process:
            assert process.wait() == 2
    assert "has not let go of NVML within 1 s: one of its processes hangs in the driver" in process.log.read_text()
    assert not (tmp_path / "ran").exists()
    with (tmp_path / "agent" / REQUEST_FILE).open() as request:
        fcntl.flock(request, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize(
    ("files", "said"), [(False, "is --state-dir the agent's?"), (True, "no agent has NVML open here")]
)
def test_where_no_agent_runs_it_says_so_and_runs_the_command_all_the_same(tmp_path, files, said):
    if files:
        (tmp_path / "agent").mkdir()
        for name in (REQUEST_FILE, OPEN_FILE):
            (tmp_path / "agent" / name).touch()
    with release_gpu(tmp_path, "--", "sh", "-c", "exit 7") as process:
        assert process.wait() == 7
    assert said in process.log.read_text()


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        (["/no/such/program"], 127, "/no/such/program: no such program"),
        (["/"], 126, "/: Permission denied"),
        (["sh", "-c", "kill -9 $$"], 128 + 9, ""),
        # No shell reads it.
        (["test", "$HOME;", "=", "$HOME;"], 0, ""),
    ],
)
def test_its_exit_status_is_the_commands_or_says_why_there_was_none(tmp_path, command, status, said):
    with release_gpu(tmp_path, "--", *command) as process:
        assert process.wait() == status
    assert said in process.log.read_text()


def test_sigterm_is_passed_on_to_the_command_whose_end_is_waited_for(tmp_path):
    script = f"trap 'touch {tmp_path}/told; exit 5' TERM; touch {tmp_path}/begun; while :; do sleep 0.05; done"
    with release_gpu(tmp_path, "--", "sh", "-c", script) as process:
        wait_for((tmp_path / "begun").exists, 20, "the command to begin")
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait() == 5
    assert (tmp_path / "told").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--limit-seconds", "0"], "HEADWORKS_AGENT_RELEASE_LIMIT_SECONDS: '0' is not valid"),
        (["--limit-seconds", "3601"], "HEADWORKS_AGENT_RELEASE_LIMIT_SECONDS: '3601' is not valid"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_by_name(tmp_path, arguments, said):
    with release_gpu(tmp_path, *arguments, "--", "touch", str(tmp_path / "ran")) as process:
        assert process.wait() == 2
    assert said in process.log.read_text()
    assert not (tmp_path / "ran").exists()


def test_files_that_it_may_not_open_are_said_with_what_to_do(tmp_path):
    (tmp_path / "agent").mkdir()
    (tmp_path / "elsewhere").touch()
    # Not followed: who may write here must not choose what is opened.
    (tmp_path / "agent" / REQUEST_FILE).symlink_to(tmp_path / "elsewhere")
    with release_gpu(tmp_path, "--", "touch", str(tmp_path / "ran")) as process:
        assert process.wait() == 2
    assert "run this as the agent's user, or as root" in process.log.read_text()
    assert not (tmp_path / "ran").exists()
