from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.services import free_port
from tests.wire.fake_control import JOIN_TOKEN, fake_control
from wire.enrolment import CannotEnrol, Enrolment, enrol_once, own_name
from wire.target import TargetRefused, load_credentials

ENROL = "/api/v1/targets/enrol"


def wanted(state_dir: Path, **changed: Any) -> Enrolment:
    fields: dict[str, Any] = {
        "kind": "node", "control_url": "http://127.0.0.1:9", "name": "node-1", "version": "0.1.0",
        "state_dir": state_dir / "state", "join_token": "", "join_token_file": state_dir / "join-token", **changed,
    }  # fmt: skip
    return Enrolment(**fields)


async def test_it_enrols_once_and_needs_neither_token_nor_control_plane_again(control, tmp_path):
    (tmp_path / "join-token").write_text(f"{JOIN_TOKEN}\n")
    await enrol_once(wanted(tmp_path, control_url=control.url))
    assert (await control.posted(ENROL))["join_token"] == JOIN_TOKEN
    (tmp_path / "join-token").unlink()
    await enrol_once(wanted(tmp_path))
    assert control.posts[ENROL].empty()


async def test_a_given_token_goes_before_the_file(control, tmp_path):
    (tmp_path / "join-token").write_text("of the file")
    await enrol_once(wanted(tmp_path, control_url=control.url, join_token=JOIN_TOKEN))
    assert (await control.posted(ENROL))["join_token"] == JOIN_TOKEN


async def test_it_waits_for_a_control_plane_that_is_away(tmp_path, monkeypatch):
    monkeypatch.setattr("wire.enrolment._RETRY_SECONDS", 0.01)
    port = free_port()
    async with fake_control(port) as control:
        control.refuse[ENROL].extend([(503, "later")] * 3)
        await enrol_once(wanted(tmp_path, control_url=control.url, join_token=JOIN_TOKEN))
    assert load_credentials(tmp_path / "state") is not None


async def test_a_refusal_is_not_tried_again(control, tmp_path):
    control.refuse[ENROL].append((403, "join_token_used"))
    with pytest.raises(TargetRefused, match="join_token_used"):
        await enrol_once(wanted(tmp_path, control_url=control.url, join_token=JOIN_TOKEN))


async def test_a_state_folder_of_another_target_is_not_taken_over(control, tmp_path):
    await enrol_once(wanted(tmp_path, control_url=control.url, join_token=JOIN_TOKEN))
    with pytest.raises(CannotEnrol, match="belongs to node 'node-1', not to 'node-2'"):
        await enrol_once(wanted(tmp_path, name="node-2"))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"\xff\xfe", "other bytes"),
        (b"x" * 1001, "longer than 1000 bytes"),
    ],
)
async def test_a_token_file_that_holds_none_is_named(tmp_path, content, reason):
    if content is not None:
        (tmp_path / "join-token").write_bytes(content)
    with pytest.raises(CannotEnrol, match=reason) as refusal:
        await enrol_once(wanted(tmp_path))
    assert str(tmp_path / "join-token") in str(refusal.value)


async def test_a_state_folder_that_cannot_be_used_is_named(control, tmp_path):
    (tmp_path / "state").write_bytes(b"")
    with pytest.raises(CannotEnrol, match="state"):
        await enrol_once(wanted(tmp_path, control_url=control.url, join_token=JOIN_TOKEN))
    assert control.posts[ENROL].empty()


def test_the_join_token_is_not_shown(tmp_path):
    assert JOIN_TOKEN not in repr(wanted(tmp_path, join_token=JOIN_TOKEN))


@pytest.mark.parametrize("name", ["Node 1", "-a", "a" * 64, "a\n"])
def test_a_name_that_cannot_be_one_is_refused(name):
    with pytest.raises(CannotEnrol, match="cannot be a gateway's name"):
        own_name("gateway", name)


def test_without_a_name_the_hosts_is_taken(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "GPU-7")
    assert own_name("node", "") == "gpu-7"
