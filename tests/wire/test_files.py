from __future__ import annotations

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


def test_a_link_laid_in_the_way_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"kept")
    (tmp_path / ".secret.json.tmp").symlink_to(victim)
    with pytest.raises(OSError, match=r"secret\.json"):
        write_private(tmp_path / "secret.json", b"one")
    assert victim.read_bytes() == b"kept"


def test_a_file_past_its_bound_is_refused(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_bounded(path, 5) == b"12345"
    with pytest.raises(ValueError, match="longer than 4 bytes"):
        read_bounded(path, 4)
