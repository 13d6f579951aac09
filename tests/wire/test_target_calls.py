from __future__ import annotations

import logging
import time

import aiohttp
import pytest

import wire.control_api
from tests.wire.fake_control import TOKEN, enrol_answer, patch_event, snapshot_event
from tests.wire.target_probe import Target, limit_patch, limited
from wire.credentials import Credentials, store_credentials
from wire.problems import Problem
from wire.snapshot_checks import SnapshotRefused
from wire.target import Pace, TargetRefused

ACK = "/api/v1/config/ack"
STREAM = "/api/v1/config/stream"
ROTATE = "/api/v1/targets/rotate"
NOW_MS = 1_790_000_000_000


async def test_a_refused_token_keeps_the_last_good_running_and_is_said(control, state_dir, caplog):
    caplog.set_level(logging.DEBUG)
    async with Target(control.url, state_dir).running() as target:
        stream = await control.stream()
        stream.send(snapshot_event(7, limited(500)))
        await control.ack()
        control.refuse[STREAM].extend([(401, "token_revoked")] * 1000)
        stream.end()
        await target.until("a refusal", lambda: "token_revoked" in (target.client.last_error or ""))
        await target.until("a second try", lambda: len(control.refuse[STREAM]) < 998)
        assert not target.client.connected
        assert target.client.revision == 7
        assert sum("token_revoked" in message for message in caplog.messages) == 1
        store_credentials(state_dir, Credentials("gw-1", "second-" + "t" * 40, 4_000_000_000_000, 3_900_000_000_000))
        await target.until("the new token in use", lambda: control.tokens[-1].startswith("second-"))
    assert TOKEN not in caplog.text


async def test_a_target_that_never_enrolled_says_so(control, tmp_path):
    async with Target(control.url, tmp_path).running() as target:
        await target.until("an error", lambda: target.client.last_error)
        assert "enrol first" in target.client.last_error
    assert control.tokens == []


async def test_the_token_is_renewed_at_half_of_its_life_and_stored_before_use(control, state_dir, caplog):
    caplog.set_level(logging.DEBUG)
    fresh = "fresh-" + "f" * 40
    control.answers[ROTATE] = enrol_answer(fresh)
    control.refuse[ROTATE].append((503, "busy"))
    now_ms = int(time.time() * 1000)
    store_credentials(state_dir, Credentials("gw-1", TOKEN, now_ms + 400, now_ms + 200))
    async with Target(control.url, state_dir).running() as target:
        stream = await control.stream()
        await control.posted(ROTATE)
        assert time.time() * 1000 >= now_ms + 200
        await target.until("the new token", lambda: fresh in (state_dir / "target.json").read_text())
        stream.end()
        assert (await control.stream()).authorization == f"Bearer {fresh}"
        await target.client.post("/api/v1/events", [])
        assert control.tokens[-1] == fresh
        assert control.posts[ROTATE].empty()
    assert fresh not in caplog.text
    assert TOKEN not in caplog.text


async def test_a_clock_that_is_years_ahead_has_the_token_renewed_once_and_is_named(control, state_dir, caplog):
    control.answers[ROTATE] = enrol_answer("fresh-" + "f" * 40)
    store_credentials(state_dir, Credentials("gw-1", TOKEN, NOW_MS + 1000, NOW_MS))
    async with Target(control.url, state_dir, clock=lambda: 5_000_000_000.0).running() as target:
        await control.posted(ROTATE)
        await target.until("a word about the clock", lambda: "set the clock" in caplog.text)
        for _ in range(20):
            await target.client.post("/api/v1/events", [])
        assert control.posts[ROTATE].empty()


async def test_a_time_of_renewal_that_a_wrong_clock_chose_is_not_waited_for(control, state_dir):
    fresh = "fresh-" + "f" * 40
    control.answers[ROTATE] = enrol_answer(fresh)
    store_credentials(state_dir, Credentials("gw-1", TOKEN, NOW_MS + 1000, NOW_MS + 2000))
    async with Target(control.url, state_dir, clock=lambda: NOW_MS / 1000).running() as target:
        await target.until("the new token", lambda: fresh in (state_dir / "target.json").read_text())


async def test_a_clock_that_is_set_back_keeps_the_token(control, state_dir):
    store_credentials(state_dir, Credentials("gw-1", TOKEN, NOW_MS + 2000, NOW_MS + 1000))
    async with Target(control.url, state_dir, clock=lambda: NOW_MS / 1000 - 3600).running() as target:
        await control.stream()
        for _ in range(20):
            await target.client.post("/api/v1/events", [])
        assert control.posts[ROTATE].empty()


async def test_a_new_token_that_cannot_be_stored_is_not_used(control, state_dir):
    control.answers[ROTATE] = enrol_answer("fresh-" + "f" * 40)
    now_ms = int(time.time() * 1000)
    store_credentials(state_dir, Credentials("gw-1", TOKEN, now_ms + 100_000, now_ms + 1))
    (state_dir / ".target.json.tmp").mkdir()
    async with Target(control.url, state_dir).running() as target:
        await control.posted(ROTATE)
        await control.posted(ROTATE)
        await target.client.post("/api/v1/events", [])
        assert set(control.tokens) == {TOKEN}


async def test_an_ack_is_posted_until_it_is_answered(control, state_dir):
    control.refuse[ACK].extend([(503, "down"), (429, "busy"), (401, "token_revoked"), (502, "down")])
    async with Target(control.url, state_dir).running():
        (await control.stream()).send(snapshot_event(7, limited(500)))
        assert (await control.ack())["revision"] == 7


async def test_a_newer_revision_takes_the_place_of_a_waiting_ack(control, state_dir):
    control.refuse[ACK].append((503, "down"))
    pace = Pace(retry_base_seconds=3600, retry_cap_seconds=3600)
    async with Target(control.url, state_dir, pace).running() as target:
        stream = await control.stream()
        stream.send(snapshot_event(7, limited(500)))
        await target.until("one refused ack", lambda: not control.refuse[ACK] and target.client.revision == 7)
        stream.send(patch_event(7, 8, limit_patch(2), limited(2)))
        assert (await control.ack())["revision"] == 8
        assert control.posts[ACK].empty()


async def test_an_ack_that_is_refused_for_good_is_not_posted_again(control, state_dir):
    control.refuse[ACK].append((409, "unknown_revision"))
    async with Target(control.url, state_dir).running():
        stream = await control.stream()
        stream.send(snapshot_event(7, limited(500)), patch_event(7, 8, limit_patch(2), limited(2)))
        assert (await control.ack())["revision"] == 8


async def test_an_artifact_is_read_whole_and_bounded(control, state_dir, monkeypatch):
    path = f"/api/v1/artifacts/{'ab' * 32}"
    control.answers[path] = b"x" * 1000
    client = Target(control.url, state_dir).client
    try:
        assert await client.get(path) == b"x" * 1000
        monkeypatch.setitem(wire.control_api.ANSWER_LIMIT_BYTES, "GET", 999)
        with pytest.raises(aiohttp.ClientError, match="more than 999 bytes"):
            await client.get(path)
        control.refuse[path].append((404, "no_artifact"))
        with pytest.raises(TargetRefused, match="no_artifact"):
            await client.get(path)
    finally:
        await client.close()


@pytest.mark.parametrize(("status", "code"), [(409, "wrong_hash"), (404, "unknown_revision")])
@pytest.mark.parametrize("refusal", [None, SnapshotRefused([Problem("/", "test", "no")])], ids=["ack", "nack"])
async def test_a_slice_that_the_control_plane_does_not_know_is_asked_for_anew(
    control, state_dir, status, code, refusal
):
    async with Target(control.url, state_dir).running() as target:
        stream = await control.stream()
        stream.send(snapshot_event(7, limited(500)))
        await control.ack()
        # Its database was restored from a backup: what it published as 8 it counts anew.
        control.refuse[ACK].append((status, code))
        target.refusal = refusal
        stream.send(patch_event(7, 8, limit_patch(20), limited(20)))
        whole = await control.stream()
        assert (whole.have, whole.hash) == (0, "")
        target.refusal = None
        whole.send(snapshot_event(3, limited(9)))
        assert (await control.ack())["revision"] == 3
        assert target.tpm_limit == 9


async def test_a_control_plane_that_disowns_what_it_sends_is_not_asked_again_and_again(control, state_dir):
    async with Target(control.url, state_dir).running() as target:
        control.refuse[ACK].extend([(409, "wrong_hash")] * 2)
        (await control.stream()).send(snapshot_event(7, limited(500)))
        again = await control.stream()
        again.send(snapshot_event(7, limited(500)))
        await target.until("the second refusal", lambda: not control.refuse[ACK])
        again.send(patch_event(7, 8, limit_patch(20), limited(20)))
        assert (await control.ack())["revision"] == 8
        assert control.streams.empty()


async def test_an_ack_that_a_newer_slice_has_overtaken_asks_for_nothing(control, state_dir):
    async with Target(control.url, state_dir).running() as target:
        stream = await control.stream()
        stream.send(snapshot_event(7, limited(500)))
        await control.ack()
        target.client._ask_anew(6)
        stream.send(patch_event(7, 8, limit_patch(20), limited(20)))
        assert (await control.ack())["revision"] == 8
        assert control.streams.empty()
