"""The broker of files, between the processes that share it."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from kombu.connection import Connection
from kombu.exceptions import ChannelError

TRANSPORT = "controlplane.core.file_broker:Transport"
MESSAGES = 300
WRITER = """
import sys
from kombu import Connection
folder, transport, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
options = {"data_folder_in": folder, "data_folder_out": folder, "control_folder": folder + "/control"}
with Connection("filesystem://", transport=transport, transport_options=options) as connection:
    for number in range(count):
        connection.default_channel._put("celery", {"number": number, "filling": "x" * 300_000})
"""


def channel(folder: Path) -> Any:
    options = {"data_folder_in": str(folder), "data_folder_out": str(folder), "control_folder": str(folder / "control")}
    return Connection("filesystem://", transport=TRANSPORT, transport_options=options).default_channel


def test_a_worker_that_looks_while_another_process_writes_reads_each_message_whole_and_once(tmp_path: Path) -> None:
    reader = channel(tmp_path)
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), TRANSPORT, str(MESSAGES)])
    seen: list[int] = []
    while len(seen) < MESSAGES:
        ended = writer.poll() is not None
        try:
            message = reader._get("celery")
        except Empty:
            assert not ended, f"only {len(seen)} of {MESSAGES} came"
        else:
            assert len(message["filling"]) == 300_000
            seen.append(message["number"])
    assert writer.wait() == 0
    assert sorted(seen) == list(range(MESSAGES))


def test_a_message_that_a_killed_writer_left_unfinished_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "1_a.celery.msg.tmp").write_text('{"half')
    reader = channel(tmp_path)
    with pytest.raises(Empty):
        reader._get("celery")
    reader._put("celery", {"number": 1})
    assert reader._get("celery") == {"number": 1}


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    broker = channel(tmp_path)
    broker.data_folder_out = str(tmp_path / "gone")
    with pytest.raises(ChannelError, match="gone"):
        broker._put("celery", {})


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    broker = channel(tmp_path)
    monkeypatch.setattr("controlplane.core.file_broker.os.replace", full)
    with pytest.raises(ChannelError, match="No space left"):
        broker._put("celery", {})
    assert list(tmp_path.glob("*.tmp")) == []
