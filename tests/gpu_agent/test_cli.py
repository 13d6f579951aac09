from __future__ import annotations

import asyncio
import logging
import os
import stat

import pytest

from gpu_agent.cli import main
from tests.gpu_agent.processes import agent
from tests.services import free_port
from tests.wire.examples import node_content
from tests.wire.fake_control import JOIN_TOKEN, TOKEN, fake_control, snapshot_event

ENROL = "/api/v1/targets/enrol"
REPORT = "/api/v1/nodes/report"


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch):
    for name in [name for name in os.environ if name.startswith("HEADWORKS_AGENT_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def _logging_restored():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


async def test_a_node_enrols_once_reports_restarts_and_ends_on_sigterm(control, engine, tmp_path):
    token_file = tmp_path / "join-token"
    token_file.write_text(JOIN_TOKEN + "\n")
    with agent(tmp_path, control.url, "--join-token-file", str(token_file)) as process:
        assert (await control.posted(ENROL))["join_token"] == JOIN_TOKEN
        (await control.stream()).send(snapshot_event(3, node_content(e1=engine.url)))
        assert (await control.ack())["revision"] == 3
        report = await control.posted(REPORT)
        while "engines" not in report:
            report = await control.posted(REPORT)
        assert report["engines"][0]["kv_capacity_tokens"] == 1_048_576
        assert await asyncio.to_thread(process.stop) == 0
    token_file.unlink()
    with agent(tmp_path, control.url) as process:
        assert (await control.stream()).have == 3
        assert (await control.ack())["revision"] == 3
        assert await asyncio.to_thread(process.stop) == 0
    assert control.posts[ENROL].empty()
    log = (tmp_path / "log").read_text()
    assert "enrolled as node node-1" in log
    assert "engine e1 is up: 0.32.0" in log
    assert "Traceback" not in log
    assert JOIN_TOKEN not in log
    assert TOKEN not in log
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "state").iterdir()}
    files = {"target.json", "last-known-good.json", "metrics.spool", "events.spool"}
    assert files <= modes.keys()
    assert set(modes.values()) == {0o600}


async def test_it_waits_for_a_control_plane_that_is_not_there_yet(tmp_path):
    port = free_port()
    with agent(tmp_path, f"http://127.0.0.1:{port}", HEADWORKS_AGENT_JOIN_TOKEN=JOIN_TOKEN) as process:
        await asyncio.to_thread(process.wait_until, lambda: "does not answer" in process.log.read_text(), "a first try")
        async with fake_control(port) as control:
            assert (await control.posted(ENROL))["join_token"] == JOIN_TOKEN
            await control.posted(REPORT)


async def test_a_refused_enrolment_ends_it_with_the_named_reason(control, tmp_path):
    control.refuse[ENROL].append((403, "join_token_used"))
    with agent(tmp_path, control.url, "--join-token", JOIN_TOKEN) as process:
        assert await asyncio.to_thread(process.wait) == 1
        assert "join_token_used, said the test" in process.log.read_text()
        assert JOIN_TOKEN not in process.log.read_text()


@pytest.mark.usefixtures("_logging_restored")
@pytest.mark.parametrize(
    ("options", "environment", "reason"),
    [
        (["--control-url", "ftp://x"], {}, "HEADWORKS_AGENT_CONTROL_URL: 'ftp://x' is not valid: give http(s)://"),
        (["--control-url", "http://user:secret@x"], {}, "without credentials"),
        (["--name", "Node 1"], {}, "'Node 1' cannot be a node's name"),
        (["--name", "node-1"], {}, "the join token cannot be read from"),
        ([], {"HEADWORKS_AGENT_PAGE_TIMEOUT_SECONDS": "soon"}, "HEADWORKS_AGENT_PAGE_TIMEOUT_SECONDS: 'soon'"),
        ([], {"HEADWORKS_AGENT_LOG_LEVEL": "loud"}, "give one of debug, info, warning, error"),
        ([], {"HEADWORKS_AGENT_GPU_SOURCE": "cuda"}, "give nvml, none, or simulated:PATH"),
        ([], {"HEADWORKS_AGENT_XID_RULES_FILE": "/nowhere.json"}, "XID rules in /nowhere.json cannot be used"),
    ],
)
def test_what_cannot_start_says_what_to_change(options, environment, reason, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HEADWORKS_AGENT_JOIN_TOKEN_FILE", str(tmp_path / "absent"))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main(["--state-dir", str(tmp_path), *options]) == 2
    said = capsys.readouterr().err
    assert reason in said
    assert "secret" not in said


@pytest.mark.usefixtures("_logging_restored")
def test_a_state_folder_of_another_node_is_not_taken_over(tmp_path, capsys):
    (tmp_path / "target.json").write_text(f'{{"name":"node-2","token":"{TOKEN}","expires_at_ms":4000000000000}}')
    assert main(["--state-dir", str(tmp_path), "--name", "node-1"]) == 2
    assert "belongs to node 'node-2'" in capsys.readouterr().err
    (tmp_path / "target.json").write_text(f'{{"token":"{TOKEN}"}}')
    assert main(["--state-dir", str(tmp_path), "--name", "node-1"]) == 1
    said = capsys.readouterr().err
    assert "enrol again" in said
    assert TOKEN not in said
