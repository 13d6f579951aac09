from __future__ import annotations

import pytest

from gpu_agent.merged.cli import main
from gpu_agent.merged.wipe import NotWiped, wipe


def test_it_removes_the_metrics_and_says_how_many(tmp_path, capsys):
    for name in ("counter_1.db", "gauge_livesum_1.db"):
        (tmp_path / name).touch()
    assert main(["wipe", str(tmp_path)]) == 0
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out == f"2 files removed from {tmp_path}\n"


def test_a_folder_that_is_not_there_needs_none_and_is_named(tmp_path, capsys):
    assert wipe(tmp_path / "nowhere") == 0
    assert main(["wipe", str(tmp_path / "nowhere")]) == 0
    assert capsys.readouterr().out == f"0 files removed from {tmp_path / 'nowhere'}, which is not there\n"


@pytest.mark.parametrize("foreign", ["model.safetensors", ".bashrc"])
def test_a_folder_with_other_things_keeps_everything(tmp_path, foreign, capsys):
    for name in ("counter_1.db", foreign):
        (tmp_path / name).touch()
    assert main(["wipe", str(tmp_path)]) == 1
    assert len(list(tmp_path.iterdir())) == 2
    assert foreign in capsys.readouterr().err


def test_neither_a_file_nor_a_link_nor_a_folder_within_is_followed(tmp_path):
    real = tmp_path / "real"
    (real / "inner.db").mkdir(parents=True)
    (tmp_path / "link").symlink_to(real)
    (tmp_path / "file").touch()
    for path in (tmp_path / "link", tmp_path / "file", real):
        with pytest.raises(NotWiped):
            wipe(path)
    assert (real / "inner.db").is_dir()
