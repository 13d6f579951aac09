"""Secrets kept in files of the data directory."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from controlplane import settings_rows as rows
from controlplane.core import kept

SECRET = "s" * 50


def test_a_secret_is_kept_for_its_owner_alone_and_read_again(tmp_path: Path) -> None:
    file = tmp_path / "data/secret-key"
    assert kept.read(file, rows.long_secret) is None
    assert kept.keep(file, SECRET, rows.long_secret) == SECRET
    assert kept.read(file, rows.long_secret) == SECRET
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["secret-key"]


def test_one_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "secret-key"
    kept.keep(file, SECRET, rows.long_secret)
    assert kept.keep(file, "t" * 50, rows.long_secret) == SECRET


def test_first_starts_at_once_agree(tmp_path: Path) -> None:
    file = tmp_path / "secret-key"
    together = threading.Barrier(8)
    seen: list[str] = []

    def start(letter: str) -> None:
        together.wait()
        seen.append(kept.keep(file, letter * 50, rows.long_secret))

    threads = [threading.Thread(target=start, args=(letter,)) for letter in "abcdefgh"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [file.read_text()] * 8
    assert [path.name for path in tmp_path.iterdir()] == ["secret-key"]


def test_what_a_killed_start_left_beside_it_is_no_hindrance(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f".secret-key.{number}").touch()
    assert kept.keep(tmp_path / "secret-key", SECRET, rows.long_secret) == SECRET


@pytest.mark.parametrize("content", [b"", b"short", b"\xff\xfe" * 40])
def test_a_file_that_holds_no_key_is_named_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "field-key"
    file.write_bytes(content)
    for attempt in (
        lambda: kept.read(file, rows.fernet_key),
        lambda: kept.keep(file, SECRET, rows.fernet_key),
    ):
        with pytest.raises(kept.CannotStart, match=f"{file} holds no usable key.*backup"):
            attempt()
    assert file.read_bytes() == content
