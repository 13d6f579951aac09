from __future__ import annotations

import json
import stat

import aiohttp
import pytest

from tests.services import free_port
from tests.wire.fake_control import JOIN_TOKEN, TOKEN, enrol_answer
from wire import PROTOCOL
from wire.target import TargetRefused, enrol, load_credentials

PATH = "/api/v1/targets/enrol"


async def enrol_at(url, state_dir):
    await enrol(
        control_url=url, join_token=JOIN_TOKEN, kind="node", name="node-1", version="0.1.0", state_dir=state_dir
    )


async def test_it_trades_a_join_token_for_credentials(control, tmp_path):
    await enrol_at(control.url, tmp_path / "state")
    assert await control.posted(PATH) == {
        "join_token": JOIN_TOKEN,
        "kind": "node",
        "name": "node-1",
        "version": "0.1.0",
        "protocol": PROTOCOL,
    }
    stored = load_credentials(tmp_path / "state")
    assert stored is not None
    assert (stored.name, stored.token, stored.expires_at_ms) == ("node-1", TOKEN, 4_000_000_000_000)
    assert [file.name for file in (tmp_path / "state").iterdir()] == ["target.json"]
    assert stat.S_IMODE((tmp_path / "state" / "target.json").stat().st_mode) == 0o600
    assert TOKEN not in repr(stored)


@pytest.mark.parametrize(
    ("status", "code"), [(401, "unknown_join_token"), (403, "wrong_kind"), (409, "name_taken"), (426, "old_protocol")]
)
async def test_a_refusal_carries_the_named_reason(control, tmp_path, status, code):
    control.refuse[PATH].append((status, code))
    with pytest.raises(TargetRefused) as refusal:
        await enrol_at(control.url, tmp_path)
    assert (refusal.value.code, refusal.value.message) == (code, f"{code}, said the test")
    assert load_credentials(tmp_path) is None


@pytest.mark.parametrize("status", [408, 429, 500, 503, 302])
async def test_what_may_pass_is_no_refusal(control, tmp_path, status):
    control.refuse[PATH].append((status, "later"))
    with pytest.raises(aiohttp.ClientError, match=str(status)):
        await enrol_at(control.url, tmp_path)


async def test_no_control_plane_is_a_client_error(tmp_path):
    with pytest.raises(aiohttp.ClientError):
        await enrol_at(f"http://127.0.0.1:{free_port()}", tmp_path)


@pytest.mark.parametrize(
    "answer", [b"", b"<html>", b"{}", b"\xff", b"[" * 5000, b'{"x":' * 5000, enrol_answer(token="short")]
)
async def test_an_answer_without_a_token_is_a_client_error(control, tmp_path, answer):
    control.answers[PATH] = answer
    with pytest.raises(aiohttp.ClientError, match="no token"):
        await enrol_at(control.url, tmp_path)
    assert load_credentials(tmp_path) is None


async def test_the_join_token_is_not_spent_where_the_answer_cannot_be_kept(control, tmp_path):
    state_dir = tmp_path / "file"
    state_dir.write_bytes(b"")
    with pytest.raises(OSError, match="file"):
        await enrol_at(control.url, state_dir)
    assert control.posts[PATH].empty()


@pytest.mark.parametrize("content", [b"", b"{", b'{"name": "node-1"}', b"\xff" * 40, b" " * 70_000])
def test_damaged_credentials_are_refused_by_name(tmp_path, content):
    (tmp_path / "target.json").write_bytes(content)
    with pytest.raises(TargetRefused, match=r"damaged_credentials: .*target\.json"):
        load_credentials(tmp_path)


def test_credentials_that_do_not_say_when_to_rotate_do_so_at_half_of_what_is_left(tmp_path):
    stored = {"name": "node-1", "token": TOKEN, "expires_at_ms": 4_000_000_000_000}
    (tmp_path / "target.json").write_text(json.dumps(stored))
    credentials = load_credentials(tmp_path)
    assert credentials is not None
    assert 2_800_000_000_000 < credentials.rotate_at_ms < 4_000_000_000_000
