from __future__ import annotations

import json
import stat
import time
from typing import Any

import pytest

from tests.services import free_port
from tests.wire.examples import gateway_content
from tests.wire.fake_control import TOKEN, fake_control, patch_event, snapshot_event
from tests.wire.target_probe import Target, limit_patch, limited
from wire.canonical import content_hash
from wire.messages import PeersEvent, encode_sse
from wire.problems import Problem
from wire.slices import FILE_NAME
from wire.snapshot_checks import SnapshotRefused
from wire.target import Pace

STREAM = "/api/v1/config/stream"


async def test_a_snapshot_is_applied_kept_and_acked(control, state_dir):
    async with Target(control.url, state_dir).running() as target:
        stream = await control.stream()
        assert (stream.have, stream.hash, stream.authorization) == (0, "", f"Bearer {TOKEN}")
        before_ms = int(time.time() * 1000)
        stream.send(b": ping\n\n", snapshot_event(7, limited(500)))
        ack = await control.ack()
        assert ack == {"revision": 7, "hash": content_hash(limited(500)), "applied_at": ack["applied_at"]}
        assert before_ms <= ack["applied_at"] <= time.time() * 1000
        assert target.client.revision == 7
        assert target.client.connected
        assert target.client.last_error is None
        assert target.tpm_limit == 500
    kept = state_dir / FILE_NAME
    assert json.loads(kept.read_bytes())["content"] == limited(500)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


async def test_patches_build_on_what_was_received(control, state_dir):
    async with Target(control.url, state_dir).running() as target:
        stream = await control.stream()
        stream.send(snapshot_event(7, limited(500)), patch_event(7, 9, limit_patch(20), limited(20)))
        await target.until("revision 9", lambda: target.client.revision == 9)
        assert target.tpm_limit == 20
        stream.end()
        resumed = await control.stream()
        assert (resumed.have, resumed.hash) == (9, content_hash(limited(20)))


@pytest.mark.parametrize(
    "bad",
    [
        snapshot_event(8, limited(1), hashed="0" * 64),
        patch_event(7, 8, limit_patch(1), limited(2)),
        patch_event(6, 8, limit_patch(1), limited(1)),
        b"event: patch\ndata: no json\n\n",
        b"event: patch\ndata: \xff\xfe\n\n",
        b'event: snapshot\ndata: {"revision": 8}\n\n',
        b"event: snapshot\ndata: " + b'{"a":' * 100_000 + b"\n\n",
    ],
    ids=["snapshot hash", "patch hash", "wrong from", "no JSON", "no UTF-8", "no content", "nested without end"],
)
async def test_what_cannot_be_verified_is_dropped_and_the_whole_is_asked_for(control, state_dir, bad):
    async with Target(control.url, state_dir).running() as target:
        stream = await control.stream()
        stream.send(snapshot_event(7, limited(500)), bad)
        whole = await control.stream()
        assert whole.have == 0
        assert target.client.revision == 7
        assert target.tpm_limit == 500
        whole.send(snapshot_event(8, limited(3)))
        await target.until("revision 8", lambda: target.client.revision == 8)
        assert target.tpm_limit == 3


async def test_a_truncated_event_is_dropped_and_the_stream_resumed(control, state_dir):
    async with Target(control.url, state_dir).running() as target:
        stream = await control.stream()
        stream.send(snapshot_event(7, limited(500)), patch_event(7, 8, limit_patch(1), limited(1))[:-1])
        stream.end()
        resumed = await control.stream()
        assert resumed.have == 7
        assert target.client.revision == 7
        resumed.send(patch_event(7, 8, limit_patch(1), limited(1)))
        await target.until("revision 8", lambda: target.client.revision == 8)


async def test_an_oversized_event_is_refused_by_name(control, state_dir):
    pace = Pace(retry_base_seconds=0.01, retry_cap_seconds=0.05, event_limit_bytes=5000)
    async with Target(control.url, state_dir, pace).running() as target:
        stream = await control.stream()
        stream.send(snapshot_event(7, limited(500)))
        await control.ack()
        control.refuse[STREAM].append((503, "down"))
        stream.send(b"event: snapshot\ndata: " + b"x" * 5000)
        assert (await control.stream()).have == 7
        assert target.client.revision == 7


async def test_a_silent_stream_is_opened_anew(control, state_dir):
    pace = Pace(retry_base_seconds=0.01, retry_cap_seconds=0.05, silence_seconds=0.1)
    async with Target(control.url, state_dir, pace).running():
        await control.stream()
        assert (await control.stream()).have == 0


async def test_something_that_is_no_stream_is_refused(control, state_dir):
    async with Target(control.url + "/elsewhere", state_dir).running() as target:
        await target.until("an error", lambda: target.client.last_error)
        assert "not text/event-stream" in target.client.last_error
        assert not target.client.connected


async def test_a_broken_slice_is_refused_with_reasons_and_the_last_good_one_stays(control, state_dir):
    broken = limited(1)
    broken["engines"]["e1"]["pool"] = "gone"
    async with Target(control.url, state_dir).running() as target:
        stream = await control.stream()
        stream.send(snapshot_event(7, limited(500)))
        await control.ack()
        patch = {**limit_patch(1), "engines": {"e1": {"pool": "gone"}}}
        stream.send(patch_event(7, 8, patch, broken))
        nack = await control.ack()
        assert nack == {
            "revision": 8,
            "error": [{"path": "/engines/e1/pool", "rule": "reference", "message": "pool 'gone' does not exist"}],
        }
        assert target.client.revision == 7
        assert target.tpm_limit == 500
        assert "/engines/e1/pool" in (target.client.last_error or "")
        assert json.loads((state_dir / FILE_NAME).read_bytes())["revision"] == 7
        stream.send(patch_event(8, 9, {"engines": {"e1": {"pool": "short"}}}, limited(1)))
        assert (await control.ack())["revision"] == 9
        assert target.tpm_limit == 1
        assert target.client.last_error is None


@pytest.mark.parametrize(
    ("refusal", "rule"),
    [(SnapshotRefused([Problem("/kind", "kind", "wants a node")]), "kind"), (KeyError("oops"), "internal")],
)
async def test_a_slice_that_the_owner_cannot_apply_is_refused(control, state_dir, refusal, rule):
    target = Target(control.url, state_dir)
    target.refusal = refusal
    async with target.running():
        stream = await control.stream()
        stream.send(snapshot_event(7, limited(500)))
        nack = await control.ack()
        assert [problem["rule"] for problem in nack["error"]] == [rule]
        assert target.client.revision == 0
        assert not (state_dir / FILE_NAME).exists()


async def test_a_slice_with_very_many_problems_sends_a_hundred(control, state_dir):
    content = gateway_content()
    content["tenants"] = {f"t{number}": {"weight": 0} for number in range(150)}
    async with Target(control.url, state_dir).running():
        (await control.stream()).send(snapshot_event(7, content))
        assert len((await control.ack())["error"]) == 100


async def test_it_restarts_on_the_last_known_good_with_the_control_plane_away(state_dir):
    port = free_port()
    async with fake_control(port) as control, Target(control.url, state_dir).running():
        (await control.stream()).send(snapshot_event(7, limited(500)))
        await control.ack()
    target = Target(f"http://127.0.0.1:{port}", state_dir)
    assert target.client.load_last_known_good()
    assert target.client.revision == 7
    assert target.tpm_limit == 500
    async with target.running():
        await target.until("an error", lambda: target.client.last_error)
        async with fake_control(port) as control:
            stream = await control.stream()
            assert stream.have == 7
            assert (await control.ack())["revision"] == 7
            stream.send(patch_event(7, 8, limit_patch(2), limited(2)))
            assert (await control.ack())["revision"] == 8
            assert target.tpm_limit == 2


async def test_the_ack_of_a_revision_says_when_it_was_first_applied_restarts_and_repeats_included(control, state_dir):
    async with Target(control.url, state_dir).running() as target:
        stream = await control.stream()
        stream.send(snapshot_event(7, limited(500)))
        first = await control.ack()
        await target.until("a later millisecond", lambda: time.time() * 1000 > first["applied_at"] + 1)
        stream.send(snapshot_event(7, limited(500)))
        assert await control.ack() == first
    target = Target(control.url, state_dir)
    assert target.client.load_last_known_good()
    async with target.running():
        assert await control.ack() == first
        stream = await control.stream()
        stream.send(snapshot_event(7, limited(500)))
        assert await control.ack() == first
        stream.send(snapshot_event(8, limited(500)))
        assert (await control.ack())["applied_at"] > first["applied_at"], "the same content under another revision"


async def test_a_kept_slice_without_a_time_is_acked_with_that_of_its_start(control, state_dir):
    (state_dir / FILE_NAME).write_bytes(kept(limited(500)))
    target = Target(control.url, state_dir)
    before_ms = int(time.time() * 1000)
    assert target.client.load_last_known_good()
    async with target.running():
        assert before_ms <= (await control.ack())["applied_at"] <= time.time() * 1000


def test_without_a_kept_slice_nothing_runs(state_dir):
    target = Target("http://127.0.0.1:1", state_dir)
    assert not target.client.load_last_known_good()
    assert target.client.last_error is None


def kept(content: dict[str, Any], hashed: str | None = None) -> bytes:
    return json.dumps({"revision": 7, "hash": hashed or content_hash(content), "content": content}).encode()


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (b"", "truncated"),
        (kept(limited(500))[:-20], "truncated"),
        (b"\x00\xff\xfe", "malformed"),
        (kept(limited(500), "0" * 64), "hash"),
        (b'{"revision": 7}', "missing"),
        (kept({"kind": "moon", "schema": 1}), "/kind"),
    ],
)
def test_a_damaged_last_known_good_is_set_aside_by_name(state_dir, damaged, reason):
    (state_dir / FILE_NAME).write_bytes(damaged)
    target = Target("http://127.0.0.1:1", state_dir)
    assert not target.client.load_last_known_good()
    assert target.client.revision == 0
    assert target.applied == []
    assert reason in (target.client.last_error or "")
    assert not (state_dir / FILE_NAME).exists()
    assert (state_dir / f"{FILE_NAME}.damaged").read_bytes() == damaged


async def test_a_full_disk_does_not_stop_a_slice(control, state_dir):
    in_the_way = state_dir / FILE_NAME
    in_the_way.mkdir()
    async with Target(control.url, state_dir).running() as target:
        stream = await control.stream()
        stream.send(snapshot_event(7, limited(500)))
        assert (await control.ack())["revision"] == 7
        assert target.client.persist_errors == 1
        assert "not kept on disk" in (target.client.last_error or "")
        in_the_way.rmdir()
        stream.send(patch_event(7, 8, limit_patch(2), limited(2)))
        assert (await control.ack())["revision"] == 8
        assert target.client.last_error is None
        assert json.loads(in_the_way.read_bytes())["revision"] == 8


async def test_peers_are_passed_on(control, state_dir):
    async with Target(control.url, state_dir).running() as target:
        (await control.stream()).send(b"event: moon\ndata: full\n\n", encode_sse("peers", PeersEvent(4)))
        await target.until("peers", lambda: target.peers == [4])
