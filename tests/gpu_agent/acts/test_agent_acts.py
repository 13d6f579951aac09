"""Acts through the agent's own process: policy file, slice, journal, reports, and kill -9 between."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal

import msgspec

from tests.gpu_agent.acts.works import DEADLINE_SECONDS, FUTURE, PAST, script, until
from tests.gpu_agent.processes import agent
from tests.wire.examples import node_content
from tests.wire.fake_control import JOIN_TOKEN, snapshot_event
from wire.canonical import content_hash
from wire.messages import LastKnownGood
from wire.slices import keep_slice

REPORT, NEWEST = "/api/v1/nodes/report", "/api/v1/config/snapshot"


def act(action, order=1, engine="e1", **arguments):
    about = {} if engine is None else {"engine": engine}
    times = {"issued_at_ms": PAST, "expires_at_ms": FUTURE}
    return {"action": action, "order": order, **times, **about, "arguments": arguments}


def act_id(number):
    return f"{number:032x}"


def content(url, *acts):
    return node_content(e1=url) | {"acts": {act_id(number): each for number, each in enumerate(acts)}}


async def reported(control, holds):
    """The acts of the next report, by id, for which `holds` is true."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            report = await control.posted(REPORT)
            acts = {each["id"]: each for each in report.get("acts", [])}
            if holds(acts):
                return acts


def all_ended(number):
    return lambda acts: len(acts) == number and all(each["state"] != "running" for each in acts.values())


def policy_file(folder, **engine):
    file = folder / "policy.json"
    file.write_text(json.dumps({"allow": ["take_up_gpus"], "engines": {"e1": engine}}))
    return {"HEADWORKS_AGENT_POLICY_FILE": str(file), "HEADWORKS_AGENT_JOIN_TOKEN": JOIN_TOKEN}


async def test_acts_of_the_slice_are_done_in_order_and_reported(control, engine_url, tmp_path):
    environment = policy_file(tmp_path, allow=["sleep", "wake"])
    acts = [act("sleep", 1, level=2), act("wake", 2), act("pause", 3), act("take_up_gpus", 4, engine=None)]
    with agent(tmp_path, control.url, **environment):
        stream = await control.stream()
        report = await control.posted(REPORT)
        assert report["allowed_acts"] == {"": ["take_up_gpus"], "e1": ["sleep", "wake"]}
        stream.send(snapshot_event(3, content(engine_url, *acts)))
        ended = await reported(control, all_ended(4))
        assert [(ended[act_id(each)]["state"], ended[act_id(each)].get("reason", "")) for each in range(4)] == [
            ("done", ""),
            ("done", ""),
            ("refused", "not_allowed"),
            ("done", ""),
        ]
        assert [ended[act_id(each)]["detail"] for each in (0, 1)] == ["asleep, level 2", "awake"]
        stream.send(snapshot_event(4, content(engine_url)))
        assert await reported(control, lambda acts: not acts) == {}
    journal = tmp_path / "state" / "acts.json"
    assert journal.stat().st_mode & 0o777 == 0o600
    kept = msgspec.json.decode(journal.read_bytes())
    assert kept == {"entries": {}, "told": {act_id(each): FUTURE for each in range(4)}}


async def test_an_agent_that_was_away_catches_up(control, engine_url, tmp_path):
    environment = policy_file(tmp_path, allow=["sleep"])
    with agent(tmp_path, control.url, **environment) as process:
        (await control.stream()).send(snapshot_event(3, content(engine_url)))
        await control.ack()
        await asyncio.to_thread(process.stop)
    with agent(tmp_path, control.url, **environment):
        (await control.stream()).send(snapshot_event(4, content(engine_url, act("sleep"))))
        assert (await reported(control, all_ended(1)))[act_id(0)]["state"] == "done"


async def stopped_before_it_began(control, engine_url, tmp_path, environment):
    """An agent on whose disk the slice asks for an act."""
    with agent(tmp_path, control.url, **environment) as process:
        (await control.stream()).send(snapshot_event(3, content(engine_url)))
        await control.ack()
        await asyncio.to_thread(process.stop)
    asked = content(engine_url, act("sleep"))
    keep_slice(tmp_path / "state", LastKnownGood(4, content_hash(asked), asked))
    return asked


async def test_an_act_that_is_still_asked_for_is_done_though_no_other_slice_comes(control, engine_url, tmp_path):
    environment = policy_file(tmp_path, allow=["sleep"])
    asked = await stopped_before_it_began(control, engine_url, tmp_path, environment)
    # A control plane that comes up a while later.
    control.refuse[NEWEST].extend([(503, "down")] * 3)
    control.answers[NEWEST] = json.dumps(asked).encode()
    with agent(tmp_path, control.url, **environment):
        await control.stream()
        assert (await reported(control, all_ended(1)))[act_id(0)]["state"] == "done"


async def test_an_act_that_was_taken_back_while_its_agent_was_away_is_not_begun(control, engine_url, tmp_path):
    environment = policy_file(tmp_path, allow=["sleep"])
    await stopped_before_it_began(control, engine_url, tmp_path, environment)
    control.answers[NEWEST] = json.dumps(content(engine_url)).encode()
    with agent(tmp_path, control.url, **environment):
        stream = await control.stream()
        # However long it takes the stream to say so.
        await until(lambda: control.gets[NEWEST] >= 3)
        stream.send(snapshot_event(5, content(engine_url)))
        while (await control.ack())["revision"] != 5:
            pass
    assert "begins" not in (tmp_path / "log").read_text()


async def test_a_restart_survives_kill_9_of_the_agent_and_is_not_repeated(control, unit, tmp_path):
    """The agent is killed while the restart command runs, which goes on."""
    environment = policy_file(
        tmp_path,
        allow=["restart", "sleep"],
        restart_command=[str(unit.script)],
        config_file=str(unit.config),
        arguments=["kv-capacity-tokens"],
    )
    hold = tmp_path / "hold"
    hold.touch()
    restart = act("restart", 1, arguments={"kv-capacity-tokens": 40_000}, limit_seconds=60)
    # Behind the restart, on an engine without dev mode.
    slice_ = content(unit.url, restart, act("sleep", 2))
    with agent(tmp_path, control.url, **environment) as process:
        (await control.stream()).send(snapshot_event(3, slice_))
        await reported(control, lambda acts: acts.get(act_id(0), {}).get("state") == "running")
        await until(lambda: unit.runs == 2)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    control.answers[NEWEST] = json.dumps(slice_).encode()
    with agent(tmp_path, control.url, **environment):
        await control.stream()
        again = await reported(control, lambda acts: bool(acts))
        assert [each["state"] for each in again.values()] == ["running"]
        hold.unlink()
        ended = await reported(control, all_ended(2))
    assert ended[act_id(0)]["state"] == "done", ended
    assert ended[act_id(0)]["detail"].startswith("KV capacity 20,000 → 40,000 tokens; served after ")
    assert ended[act_id(0)]["detail"].endswith("before: kv-capacity-tokens=20000")
    assert ended[act_id(1)]["reason"] == "dev_mode_off"
    assert unit.runs == 2
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log
    assert "goes on after a restart of the agent: restart on e1" in log


async def test_a_fetch_survives_kill_9_of_the_agent_and_its_command_is_not_run_twice(control, tmp_path):
    """The agent is killed while the command runs, which goes on and holds the next one off."""
    content = json.dumps({"files": {"w": {"size_bytes": 3, "sha256": hashlib.sha256(b"abc").hexdigest()}}}).encode()
    manifest = hashlib.sha256(content).hexdigest()
    control.answers[f"/api/v1/artifacts/{manifest}"] = content
    models, hold, runs = tmp_path / "models", tmp_path / "hold", tmp_path / "runs"
    models.mkdir()
    hold.touch()
    fetch = script(
        tmp_path / "fetch",
        f'echo run >>{runs}; while [ -e {hold} ]; do sleep 0.02; done; mkdir -p "$1"; printf abc >"$1/w"',
    )
    policy = {
        "allow": ["fetch_model"], "fetch_command": [str(fetch), "{folder}"], "model_folders": [str(models)],
    }  # fmt: skip
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(policy))
    environment = {"HEADWORKS_AGENT_POLICY_FILE": str(file), "HEADWORKS_AGENT_JOIN_TOKEN": JOIN_TOKEN}
    asked = act("fetch_model", engine=None, manifest=manifest, folder=str(models / "llama"))
    slice_ = node_content() | {"acts": {act_id(0): asked}}
    with agent(tmp_path, control.url, **environment) as process:
        (await control.stream()).send(snapshot_event(3, slice_))
        await until(runs.exists)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    with agent(tmp_path, control.url, **environment):
        await control.stream()
        running = await reported(control, lambda acts: bool(acts))
        assert [each["state"] for each in running.values()] == ["running"]
        hold.unlink()
        ended = await reported(control, all_ended(1))
        assert (ended[act_id(0)]["state"], ended[act_id(0)]["detail"]) == ("done", f"whole: 3 bytes in {models}/llama")
        report = await control.posted(REPORT)
        while not report.get("model_files"):
            report = await control.posted(REPORT)
        assert report["model_files"][0]["state"] == "whole"
    assert runs.read_text() == "run\n"
