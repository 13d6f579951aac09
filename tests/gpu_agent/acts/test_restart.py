"""Restarts of a simulated engine by a script, as a node's policy names one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu_agent.acts import restart, serving
from gpu_agent.acts.command import Ran
from gpu_agent.acts.outcome import NotDone, failed
from gpu_agent.acts.tools import EngineWork
from gpu_agent.engines.look import Look
from gpu_agent.policy import EnginePolicy
from tests.gpu_agent.acts.unit import FILE, Unit
from tests.gpu_agent.acts.works import PAST, node_engine, real_work, script, tools
from wire.acts import Restart
from wire.engine_pages.numbers import Reading
from wire.messages import EngineReport


async def test_new_arguments_are_written_the_engine_restarted_and_its_capacity_told(unit):
    expected = []
    engine = node_engine(unit.url, served_model="llama")
    async with real_work(
        engine, unit.policy(), expect_restart=lambda name, within_seconds: expected.append((name, within_seconds))
    ) as work:
        said = await work.do(Restart({"kv-capacity-tokens": 40_000, "max-num-batched-tokens": 4096}, 60))
    before = "before: kv-capacity-tokens=20000, max-num-batched-tokens not set"
    assert said.startswith("KV capacity 20,000 → 40,000 tokens; served after ")
    assert said.endswith(before)
    assert unit.config.read_text() == (
        "# of the node\nkv-capacity-tokens: 40000\nmax-num-seqs: 64\nmax-num-batched-tokens: 4096\n"
    )
    assert expected == [("e1", 60)]
    assert unit.runs == 2


async def test_without_arguments_the_file_is_not_touched(unit):
    unit.config.write_text(FILE + "seed: 1\n")
    unit.config.chmod(0o400)
    before = unit.config.stat().st_ino
    async with real_work(node_engine(unit.url), unit.policy()) as work:
        assert (await work.do(Restart({}, 60))).startswith("KV capacity 20,000 → 20,000 tokens; served after ")
    assert (unit.config.stat().st_ino, unit.config.read_text()) == (before, FILE + "seed: 1\n")


async def test_an_engine_that_does_not_serve_gets_its_former_file_back_and_serves(unit):
    async with real_work(node_engine(unit.url), unit.policy()) as work:
        with pytest.raises(NotDone) as failure:
            # Fewer tokens a step than sequences: it ends at once.
            await work.do(Restart({"max-num-batched-tokens": 1}, 5))
        assert (await work.work.look()).report.state == "up"
    assert (failure.value.state, failure.value.reason) == ("failed", "did_not_serve")
    assert failure.value.detail.startswith("the former arguments are back, and it serves with them; what went wrong: ")
    assert unit.config.read_text() == FILE
    assert unit.runs == 3


async def test_a_command_that_fails_puts_the_file_back_and_says_its_last_words(unit):
    broken = script(unit.folder / "broken", "echo 'Failed to restart: access denied'; exit 4")
    async with real_work(node_engine(unit.url), unit.policy(restart_command=[str(broken)])) as work:
        with pytest.raises(NotDone) as failure:
            await work.do(Restart({"max-num-seqs": 8}, 60))
        assert failure.value.reason == "command_failed"
        assert failure.value.detail.endswith("ended with status 4, and wrote last: Failed to restart: access denied")
        assert "it serves with them" in failure.value.detail
        assert unit.config.read_text() == FILE
        with pytest.raises(NotDone, match="the restart command ended with status 4"):
            await work.do(Restart({}, 60))


async def test_a_former_file_that_cannot_be_put_back_is_told(unit):
    removes = script(unit.folder / "removes", f"rm {unit.config}; exit 1")
    async with real_work(node_engine(unit.url), unit.policy(restart_command=[str(removes)])) as work:
        with pytest.raises(NotDone, match=r"the former file could not be put back: .*No such file") as failure:
            await work.do(Restart({"max-num-seqs": 8}, 60))
    assert failure.value.reason == "command_failed"


async def test_a_disk_that_is_full_before_the_command_leaves_engine_and_file_as_they_were(unit):
    async with real_work(node_engine(unit.url), unit.policy()) as work:
        room = 1

        async def keep(kept):
            nonlocal room
            room -= 1
            if room < 0:
                raise failed("journal", "No space left on device")

        work.work = replace(work.work, keep=keep)
        with pytest.raises(NotDone) as failure:
            await work.do(Restart({"max-num-seqs": 8}, 60))
    assert (failure.value.state, failure.value.reason) == ("failed", "journal")
    assert unit.config.read_text() == FILE
    assert unit.runs == 1


async def test_an_old_process_that_still_answers_is_not_taken_for_the_new_one(unit):
    async with real_work(node_engine(unit.url), unit.policy(restart_command=["/bin/true"])) as work:
        with pytest.raises(NotDone, match="the process that answers is the one from before"):
            await work.do(Restart({}, 1))


async def test_a_wrong_model_does_not_count_as_serving(unit):
    async with real_work(node_engine(unit.url, served_model="other"), unit.policy()) as work:
        with pytest.raises(NotDone, match="it serves llama, not other"):
            await work.do(Restart({}, 3))


@pytest.mark.parametrize(
    ("arguments", "changed", "kind", "reason", "said"),
    [
        ({"model": "x"}, {}, "vllm", "argument_not_allowed", "model may not be set here; .* kv-capacity-tokens, max-"),
        ({"seed": 1}, {"config_file": None}, "vllm", "config_file", "names no config_file"),
        ({"seed": 1}, {}, "sglang", "bad_arguments", "the engine is sglang"),
        ({"max-num-seqs": 1}, {"config_file": "/nowhere.yaml"}, "vllm", "config_file", "cannot be read"),
    ],
)
async def test_what_the_policy_does_not_name_is_refused_before_anything_is_done(
    tmp_path, arguments, changed, kind, reason, said
):
    policy = Unit(tmp_path).policy(**changed)
    async with real_work(node_engine(kind=kind), policy) as work:
        with pytest.raises(NotDone, match=said) as refused:
            await work.do(Restart(arguments))
        assert (refused.value.state, refused.value.reason, work.kept) == ("refused", reason, [])


@pytest.mark.parametrize("stage", ["file", "failed"])
async def test_the_text_of_one_file_is_not_written_to_another_that_the_policy_names_since(tmp_path, stage):
    former, other = tmp_path / "former.yaml", tmp_path / "other.yaml"
    other.write_text("seed: 7\n")
    kept = {"stage": stage, "file": str(former), "former": "seed: 1\n", "changed": "seed: 2\n"}
    kept |= {"before": "seed=1", "reason": "did_not_serve", "problem": "it is down"}
    policy = EnginePolicy(restart_command=["/bin/false"], config_file=str(other), arguments=["seed"])
    async with real_work(node_engine(), policy) as work:
        with pytest.raises(NotDone, match=r"former\.yaml is no longer the configuration file") as failure:
            await work.going_on(kept).do(Restart({"seed": 2}, 1))
    assert failure.value.state == "failed"
    assert other.read_text() == "seed: 7\n"


class Crash(BaseException):
    """The agent is killed."""


SERVES = st.sampled_from(["new", "former", "never"])


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(crashes=st.lists(st.integers(1, 8), max_size=3), serves=SERVES, command_fails=st.booleans())
async def test_a_crash_at_any_step_starts_no_command_twice_and_leaves_no_file_between(
    tmp_path, monkeypatch, crashes, serves, command_fails
):
    """`serves`: with which file the engine does."""
    config = tmp_path / "engine.yaml"
    config.write_text("max-num-seqs: 1\n")
    policy = EnginePolicy(restart_command=["x"], config_file=str(config), arguments=["max-num-seqs"])
    disk, runs, left = {}, [], 0

    def step():
        nonlocal left
        left -= 1
        if left == 0:
            raise Crash

    async def keep(kept):
        step()
        disk.update(kept)
        step()

    async def run(command, limit_seconds):
        runs.append(config.read_text())
        step()
        return Ran(1 if command_fails and len(runs) == 1 else 0, "")

    async def look(name, engine):
        up = not runs or serves == ("new" if "2" in runs[-1] else "former")
        numbers = [Reading("process_start_time_seconds", (), float(len(runs)))]
        return Look(EngineReport("e1", "up" if up else "down", error="it is down"), PAST, numbers if up else [])

    monkeypatch.setattr(serving, "run_command", run)
    monkeypatch.setattr(restart._Restart, "_hindrance", _hindrance_without_models)
    monkeypatch.setattr(serving, "POLL_SECONDS", 0.001)
    used = tools(look=look)
    outcome: Any = None
    for steps in [*crashes, 10**9]:
        left = steps
        try:
            outcome = await restart.restart(
                EngineWork("e1", node_engine(), policy, dict(disk), keep, used),
                Restart({"max-num-seqs": 2}, limit_seconds=0.02),  # type: ignore[arg-type]
            )
            break
        except NotDone as end:
            outcome = end
            break
        except Crash:
            continue
    assert len(runs) <= 2, "once with the new file, once with the former"
    assert [run for run in runs if "2" in run] == runs[:1]
    done = isinstance(outcome, str)
    assert config.read_text() == ("max-num-seqs: 2\n" if done else "max-num-seqs: 1\n")
    if not crashes:
        assert done == (serves == "new" and not command_fails)


async def _hindrance_without_models(self):
    look = await self._work.look()
    return "" if look.report.state == "up" else "it is down"
