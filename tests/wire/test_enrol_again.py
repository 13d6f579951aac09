"""A target whose token is refused enrols anew with a new join token, and serves its last good slice meanwhile."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

import pytest

from tests.services import Process, free_port
from tests.wire.examples import gateway_content, node_content
from tests.wire.fake_control import JOIN_TOKEN, TOKEN, FakeControl, enrol_answer, snapshot_event
from tests.wire.target_probe import Target, limited
from tests.wire.test_enrolment import ENROL, wanted
from wire.credentials import Credentials, load_credentials, sha256_of, store_credentials
from wire.enrolment import EnrolAgain

STREAM = "/api/v1/config/stream"
SECOND_JOIN_TOKEN = "join-" + "k" * 40
SECOND_TOKEN = "second-" + "t" * 40
REFUSALS = [(401, "unauthenticated"), (401, "expired"), (403, "revoked")]


def enrolled(folder: Path) -> Path:
    """The state folder of a target that enrolled with JOIN_TOKEN."""
    credentials = Credentials("node-1", TOKEN, 4_000_000_000_000, 3_900_000_000_000, sha256_of(JOIN_TOKEN))
    store_credentials(folder / "state", credentials)
    return folder / "state"


def target(control: FakeControl, folder: Path, join_token: str = "") -> Target:
    again = EnrolAgain(wanted(folder, control_url=control.url, join_token=join_token))
    return Target(control.url, enrolled(folder), enrol_again=again)


async def refused(control: FakeControl, running: Target, status: int, code: str) -> None:
    """Apply revision 7, then have every further use of the first token refused until the stream was tried thrice."""
    stream = await control.stream()
    stream.send(snapshot_event(7, limited(500)))
    await control.ack()
    control.refuse[STREAM].extend([(status, code)] * 10_000)
    stream.end()
    await running.until("three tries", lambda: len(control.refuse[STREAM]) <= 10_000 - 3)
    assert running.client.revision == 7
    assert not running.client.connected


@pytest.mark.parametrize(("status", "code"), REFUSALS)
async def test_a_new_join_token_in_the_file_is_found_while_the_last_good_slice_runs(
    control, tmp_path, caplog, status, code
):
    caplog.set_level(logging.DEBUG)
    (tmp_path / "join-token").write_text(JOIN_TOKEN)
    control.answers[ENROL] = enrol_answer(SECOND_TOKEN)
    async with target(control, tmp_path).running() as running:
        await refused(control, running, status, code)
        logged = [record.getMessage() for record in caplog.records if record.name == "headworks.target"]
        for said in (running.client.last_error, logged[-1]):
            assert f"the token in {tmp_path}/state/target.json is of no more use" in said
            assert f"put a new join token into {tmp_path}/join-token" in said
        assert control.posts[ENROL].empty(), "the used join token is not tried again"
        control.refuse[STREAM].clear()
        control.refuse[STREAM].append((status, code))
        (tmp_path / "join-token").write_text(SECOND_JOIN_TOKEN)
        await running.until("the second token", lambda: SECOND_TOKEN in control.tokens)
    assert not caplog.text.count("Traceback")
    assert not any(secret in caplog.text for secret in (JOIN_TOKEN, SECOND_JOIN_TOKEN, TOKEN, SECOND_TOKEN))


async def test_the_new_identity_follows_the_stream_and_says_again_what_runs(control, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    control.answers[ENROL] = enrol_answer(SECOND_TOKEN)
    async with target(control, tmp_path, SECOND_JOIN_TOKEN).running() as running:
        stream = await control.stream()
        stream.send(snapshot_event(7, limited(500)))
        first = await control.ack()
        control.refuse[STREAM].append((403, "revoked"))
        stream.end()
        body = await control.posted(ENROL)
        assert (body["join_token"], body["kind"], body["name"]) == (SECOND_JOIN_TOKEN, "node", "node-1")
        stream = await control.stream()
        assert (stream.have, stream.authorization) == (7, f"Bearer {SECOND_TOKEN}")
        assert await control.ack() == first
        await running.until("no error", lambda: running.client.last_error is None)
    stored = load_credentials(tmp_path / "state")
    assert stored is not None
    assert (stored.name, stored.token, stored.join_token_sha256) == (
        "node-1", SECOND_TOKEN, sha256_of(SECOND_JOIN_TOKEN),
    )  # fmt: skip
    assert "enrolled again as node node-1" in caplog.messages
    assert "the config stream is back" in caplog.messages


async def test_a_given_join_token_that_was_used_gives_way_to_the_file(control, tmp_path):
    (tmp_path / "join-token").write_text(SECOND_JOIN_TOKEN)
    control.refuse[STREAM].append((401, "expired"))
    async with target(control, tmp_path, JOIN_TOKEN).running():
        assert (await control.posted(ENROL))["join_token"] == SECOND_JOIN_TOKEN


async def test_a_refused_join_token_is_tried_once(control, tmp_path):
    (tmp_path / "join-token").write_text(SECOND_JOIN_TOKEN)
    control.refuse[ENROL].append((410, "join_token_expired"))
    async with target(control, tmp_path).running() as running:
        await refused(control, running, 401, "expired")
        assert not control.refuse[ENROL]
        assert control.posts[ENROL].empty()
        assert "put a new join token into" in (running.client.last_error or "")


@pytest.mark.parametrize("refusal", [(503, "busy"), (409, "name_taken")])
async def test_a_join_token_that_was_not_to_blame_is_tried_again(control, tmp_path, refusal):
    (tmp_path / "join-token").write_text(SECOND_JOIN_TOKEN)
    control.refuse[ENROL].append(refusal)
    control.refuse[STREAM].extend([(401, "expired")] * 2)
    async with target(control, tmp_path).running():
        assert (await control.posted(ENROL))["join_token"] == SECOND_JOIN_TOKEN
        await control.stream()


async def test_another_refusal_than_of_the_token_spends_no_join_token(control, tmp_path):
    (tmp_path / "join-token").write_text(SECOND_JOIN_TOKEN)
    async with target(control, tmp_path).running() as running:
        await refused(control, running, 426, "protocol")
        assert control.posts[ENROL].empty()
        assert "protocol" in (running.client.last_error or "")


async def test_credentials_that_another_process_stored_are_tried_before_a_join_token(control, tmp_path):
    (tmp_path / "join-token").write_text(SECOND_JOIN_TOKEN)
    async with target(control, tmp_path).running():
        stream = await control.stream()
        store_credentials(tmp_path / "state", Credentials("node-1", SECOND_TOKEN, 4_000_000_000_000, 3_900_000_000_000))
        control.refuse[STREAM].append((401, "unauthenticated"))
        stream.end()
        assert (await control.stream()).authorization == f"Bearer {SECOND_TOKEN}"
    assert control.posts[ENROL].empty()


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "No such file"), (b"", "is empty"), (b"\xff", "other bytes"), (b"x" * 1001, "longer")],
)
async def test_a_join_token_file_without_one_is_named(control, tmp_path, content, reason):
    if content is not None:
        (tmp_path / "join-token").write_bytes(content)
    async with target(control, tmp_path).running() as running:
        await refused(control, running, 401, "expired")
        assert reason in (running.client.last_error or "")


async def test_credentials_that_cannot_be_kept_spend_no_join_token(control, tmp_path):
    (tmp_path / "join-token").write_text(SECOND_JOIN_TOKEN)
    running_target = target(control, tmp_path)
    (tmp_path / "state" / ".enrolling.tmp").mkdir()
    async with running_target.running() as running:
        await refused(control, running, 401, "expired")
        assert "new credentials cannot be kept in" in (running.client.last_error or "")
    assert control.posts[ENROL].empty()


@pytest.mark.parametrize("kind", ["node", "gateway"])
async def test_a_real_process_enrols_again_without_a_restart(control, tmp_path, kind):
    content = node_content() if kind == "node" else gateway_content()
    module, extra = ("gpu_agent.cli", []) if kind == "node" else ("gateway.cli", ["--port", str(free_port())])
    token_file = tmp_path / "join-token"
    token_file.write_text(JOIN_TOKEN)
    command = [sys.executable, "-m", module, "--control-url", control.url, "--name", "node-1", *extra]
    command += ["--state-dir", str(tmp_path / "state"), "--join-token-file", str(token_file)]
    with Process(command, log=tmp_path / "log") as process:
        assert (await control.posted(ENROL))["join_token"] == JOIN_TOKEN
        stream = await control.stream()
        stream.send(snapshot_event(7, content))
        first = await control.ack()
        assert first["revision"] == 7, first
        control.answers[ENROL] = enrol_answer(SECOND_TOKEN)
        control.revoked.add(TOKEN)
        stream.end()
        told = f"put a new join token into {token_file}"
        await asyncio.to_thread(process.wait_until, lambda: told in process.log.read_text(), "the advice")
        token_file.write_text(SECOND_JOIN_TOKEN)
        assert (await control.posted(ENROL))["join_token"] == SECOND_JOIN_TOKEN
        stream = await control.stream()
        assert (stream.have, stream.authorization) == (7, f"Bearer {SECOND_TOKEN}")
        assert await control.ack() == first
        assert await asyncio.to_thread(process.stop) == 0
    log = (tmp_path / "log").read_text()
    for line in (f"enrolled as {kind} node-1", f"enrolled again as {kind} node-1", "the config stream is back"):
        assert line in log
    assert "Traceback" not in log
    assert not any(secret in log for secret in (JOIN_TOKEN, SECOND_JOIN_TOKEN, TOKEN, SECOND_TOKEN))
