from __future__ import annotations

import os
import threading
import time

import pytest

from gpu_agent.host import disks
from gpu_agent.host.disks import Disks


@pytest.fixture
def server_is_back():
    event = threading.Event()
    yield event
    event.set()


async def test_room_of_real_disks_and_the_reason_where_there_is_none(tmp_path):
    missing = str(tmp_path / "missing")
    watched = Disks([str(tmp_path), missing])
    found = {(sample.name, sample.labels["path"]): sample.value for sample in await watched.samples()}
    size = found["headworks_host_disk_bytes", str(tmp_path)]
    assert 0 < found["headworks_host_disk_available_bytes", str(tmp_path)] <= size
    assert len(found) == 2
    assert "No such file" in watched.problems[missing]


async def test_a_disk_that_does_not_answer_holds_up_no_other_and_is_not_asked_twice(monkeypatch, server_is_back):
    monkeypatch.setattr(disks, "_ANSWER_SECONDS", 0.05)
    asked = []

    def statvfs(path):
        asked.append(path)
        if path == "/dead":
            server_is_back.wait()
        return os.statvfs("/")

    watched = Disks(["/dead", "/"], statvfs)
    for _ in range(3):
        begun = time.monotonic()
        found = await watched.samples()
        assert {sample.labels["path"] for sample in found} == {"/"}
        assert time.monotonic() - begun < 10
    assert asked.count("/dead") == 1
    assert watched.problems.keys() == {"/dead"}


async def test_a_disk_that_answers_again_is_told_again(monkeypatch, server_is_back):
    monkeypatch.setattr(disks, "_ANSWER_SECONDS", 0.05)

    def statvfs(_path):
        server_is_back.wait()
        return os.statvfs("/")

    watched = Disks(["/models"], statvfs)
    assert await watched.samples() == []
    server_is_back.set()
    monkeypatch.setattr(disks, "_ANSWER_SECONDS", 10)
    deadline = time.monotonic() + 10
    while not (found := await watched.samples()):
        assert time.monotonic() < deadline
    assert len(found) == 2
    assert watched.problems == {}
