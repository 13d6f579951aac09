from __future__ import annotations

import asyncio
import os
import time

import pytest

from gpu_agent.acts.command import run_command
from tests.gpu_agent.acts.works import DEADLINE_SECONDS, script, until


async def test_status_and_the_end_of_the_output_come_back(tmp_path):
    file = script(
        tmp_path / "restart", 'echo "first"; head -c 200000 /dev/zero | tr "\\0" x; echo; echo "last $1" >&2; exit 3'
    )
    ran = await run_command([str(file), "one; two"], DEADLINE_SECONDS)
    assert ran.status == 3
    assert ran.output.endswith("x last one; two")
    assert len(ran.output) <= 2000


async def test_its_input_is_closed_and_no_setting_of_the_agents_reaches_it(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADWORKS_AGENT_JOIN_TOKEN", "join-secret")
    monkeypatch.setenv("OF_THE_UNIT", "kept")
    file = script(tmp_path / "restart", "cat; env")
    ran = await run_command([str(file)], DEADLINE_SECONDS)
    assert "OF_THE_UNIT=kept" in ran.output
    assert "join-secret" not in ran.output


async def test_one_that_is_late_is_ended_with_its_children(tmp_path):
    file = script(
        tmp_path / "restart", f'sleep 1000 & echo $! > {tmp_path}/child; trap "" TERM; echo begun; sleep 1000'
    )
    begun_seconds = time.monotonic()
    ran = await run_command([str(file)], 0.5)
    assert ran.status is None
    assert ran.output == "begun"
    assert time.monotonic() - begun_seconds < DEADLINE_SECONDS
    child = int((tmp_path / "child").read_text())
    await until(lambda: not _runs(child))


async def test_one_that_ended_while_the_agent_stood_still_has_ended(tmp_path):
    file = script(tmp_path / "restart", f"touch {tmp_path}/begun; sleep 0.1; exit 7")
    running = asyncio.create_task(run_command([str(file)], 0.5))
    await until((tmp_path / "begun").exists)
    time.sleep(1)  # noqa: ASYNC251 - that is what is tested
    assert (await running).status == 7


async def test_what_it_leaves_running_holds_nothing_back(tmp_path):
    file = script(tmp_path / "restart", f"sleep 1000 & echo $! > {tmp_path}/child")
    try:
        ran = await run_command([str(file)], DEADLINE_SECONDS)
        child = int((tmp_path / "child").read_text())
        assert ran.status == 0
        assert _runs(child)
    finally:
        os.kill(int((tmp_path / "child").read_text()), 9)


@pytest.mark.parametrize("text", ["exec >&- 2>&-; sleep 0.5", "yes"], ids=["closed", "endless"])
async def test_output_that_is_closed_or_never_ends_costs_next_to_nothing(tmp_path, text):
    file = script(tmp_path / "restart", text)
    begun_seconds, used_seconds = time.monotonic(), time.process_time()
    await run_command([str(file)], 0.6)
    took_seconds = time.monotonic() - begun_seconds
    assert time.process_time() - used_seconds < 0.15 * took_seconds


async def test_it_goes_on_when_the_agent_ends(tmp_path):
    file = script(
        tmp_path / "restart", f"touch {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; "
        f"echo more; touch {tmp_path}/end"
    )  # fmt: skip
    task = asyncio.create_task(run_command([str(file)], DEADLINE_SECONDS))
    await until((tmp_path / "begun").exists)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    (tmp_path / "go").touch()
    await until((tmp_path / "end").exists)


async def test_a_program_that_is_not_there_is_an_error(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        await run_command([str(tmp_path / "absent")], DEADLINE_SECONDS)
    assert len(os.listdir("/proc/self/fd")) == before


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
