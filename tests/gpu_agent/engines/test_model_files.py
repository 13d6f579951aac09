from __future__ import annotations

import os

import pytest

from gpu_agent.engines import model_files as module
from gpu_agent.engines.model_files import ModelFiles, TooManyFiles, model_files

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / {models} rw,relatime shared:5 - nfs4 server:/models rw,vers=4.2
31 30 0:41 / {models}/fast\\040disk rw - xfs /dev/nvme0n1 rw
broken line
"""


@pytest.fixture
def mounts(tmp_path):
    file = tmp_path / "mountinfo"
    file.write_text(MOUNTS.format(models=tmp_path / "models"))
    return file


def folder(path, **sizes):
    path.mkdir(parents=True)
    for name, size in sizes.items():
        (path / name).write_bytes(b"x" * size)
    return path


def test_a_folder_is_as_large_as_its_files_and_lies_where_its_mount_says(tmp_path, mounts):
    model = folder(tmp_path / "models" / "llama", weights=700, config=30)
    folder(model / "tokenizer", vocabulary=4)
    assert model_files(model, mounts) == ModelFiles(734, "nfs4", "network")


def test_the_innermost_mount_holds_a_file_its_name_escaped_as_the_kernel_does(tmp_path, mounts):
    model = folder(tmp_path / "models" / "fast disk", weights=5)
    assert model_files(model / "weights", mounts) == ModelFiles(5, "xfs", "local")


def test_a_folder_beside_a_mount_whose_name_begins_so_is_not_in_it(tmp_path, mounts):
    assert model_files(folder(tmp_path / "models-old", weights=5), mounts) == ModelFiles(5, "ext4", "local")


def test_files_that_several_links_name_count_once_and_where_they_lie(tmp_path, mounts):
    blobs = folder(tmp_path / "models" / "blobs", abc=100)
    snapshot = folder(tmp_path / "snapshots" / "main", config=1)
    for name in ("weights", "same-weights"):
        (snapshot / name).symlink_to(blobs / "abc")
    (snapshot / "gone").symlink_to(blobs / "none")
    assert model_files(snapshot, mounts).size_bytes == 101
    link = tmp_path / "current"
    link.symlink_to(blobs)
    assert model_files(link, mounts).filesystem == "nfs4"


def test_links_in_a_circle_end(tmp_path, mounts):
    model = folder(tmp_path / "llama", weights=5)
    (model / "again").symlink_to(model)
    assert model_files(model, mounts).size_bytes == 5


def test_a_folder_of_other_things_is_not_walked_to_its_end(tmp_path, mounts, monkeypatch):
    monkeypatch.setattr(module, "_FILES_LIMIT", 3)
    with pytest.raises(TooManyFiles, match="name the folder of one model"):
        model_files(folder(tmp_path / "home", a=1, b=1, c=1, d=1), mounts)


def test_what_is_not_there_has_no_size(tmp_path, mounts):
    with pytest.raises(FileNotFoundError):
        model_files(tmp_path / "nothing", mounts)


def test_a_real_folder_lies_on_a_real_filesystem(tmp_path):
    assert model_files(folder(tmp_path / "llama", weights=5)).filesystem != "unknown"
    assert os.path.exists("/proc/self/mountinfo")
