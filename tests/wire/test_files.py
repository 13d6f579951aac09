from __future__ import annotations

import os
import stat

import pytest

from wire.files import read_bounded, write_private


def test_a_private_file_is_its_owners_alone(tmp_path):
    path = tmp_path / "state" / "secret.json"
    write_private(path, b"one")
    write_private(path, b"two")
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [file.name for file in path.parent.iterdir()] == ["secret.json"]


def test_a_wider_mode_of_an_older_file_does_not_last(tmp_path):
    path, left_over = tmp_path / "secret.json", tmp_path / ".secret.json.tmp"
    for file in (path, left_over):
        file.touch(0o644)
    write_private(path, b"one")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_failed_write_leaves_nothing_behind(tmp_path):
    path = tmp_path / "taken"
    path.mkdir()
    with pytest.raises(OSError, match="taken"):
        write_private(path, b"one")
    assert [file.name for file in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize("lay", ["symlink", "hard link", "pipe"])
def test_what_others_laid_in_the_way_is_neither_written_to_nor_waited_for(tmp_path, lay):
    victim, in_the_way, path = tmp_path / "victim", tmp_path / ".secret.json.tmp", tmp_path / "secret.json"
    victim.write_bytes(b"kept")
    if lay == "symlink":
        in_the_way.symlink_to(victim)
    elif lay == "hard link":
        in_the_way.hardlink_to(victim)
    else:
        os.mkfifo(in_the_way)
    write_private(path, b"one")
    assert (victim.read_bytes(), path.read_bytes()) == (b"kept", b"one")
    assert path.is_file()
    assert not path.is_symlink()


def test_a_file_past_its_bound_is_refused(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_bounded(path, 5) == b"12345"
    with pytest.raises(ValueError, match="longer than 4 bytes"):
        read_bounded(path, 4)
