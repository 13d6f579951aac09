from __future__ import annotations

import os
from typing import Any

import pytest

from gpu_agent.merged.vllm_files import FilesUnavailable, read_files

LIMITS = {"files_limit": 100, "limit_bytes": 16 << 20}


def values(folder, **changed: Any):
    limits: dict[str, Any] = {**LIMITS, **changed}
    found = read_files(folder, **limits)
    return {
        (sample.name, sample.labels.get("engine"), sample.labels.get("le")): sample.value
        for family in found.families
        for sample in family.samples
    }, found.skipped


def test_the_numbers_of_all_processes_are_put_together_and_engines_kept_apart(vllm):
    for engine, requests in (("0", 2), ("0", 3), ("1", 7)):
        vllm.start(engine, requests)
    found, skipped = values(vllm.folder)
    assert found["vllm:generation_tokens_total", "0", None] == 50
    assert found["vllm:generation_tokens_total", "1", None] == 70
    assert found["vllm:time_to_first_token_seconds_bucket", "0", "1.0"] == 5
    assert found["vllm:iteration_tokens_total_count", "1", None] == 7
    assert found["vllm:processes", None, None] == 3
    assert skipped == 0


def test_a_process_that_was_killed_keeps_its_counts_and_is_alive_no_more(vllm):
    killed = vllm.start("0", 2)
    vllm.start("0", 3)
    killed.kill()
    killed.communicate()
    found, _ = values(vllm.folder)
    assert found["vllm:generation_tokens_total", "0", None] == 50
    assert found["vllm:processes", None, None] == 1


def test_processes_that_cannot_be_seen_from_here_all_count_as_alive(vllm, tmp_path):
    vllm.start()
    vllm.start()
    found, _ = values(vllm.folder, proc=tmp_path / "another-namespace")
    assert found["vllm:processes", None, None] == 2


@pytest.mark.parametrize("damage", [b"", b"\x40\0\0\0", b"\x40\0\0\0" + b"\xff" * 100], ids=range(3))
def test_a_damaged_file_hides_none_of_the_others(vllm, damage):
    vllm.start("0", 2)
    (vllm.folder / "counter_999999999.db").write_bytes(damage)
    found, skipped = values(vllm.folder)
    assert found["vllm:generation_tokens_total", "0", None] == 20
    assert skipped == 1


def test_other_files_in_the_folder_are_passed_over(vllm):
    vllm.start("0", 2)
    (vllm.folder / "notes.txt").write_text("mine")
    (vllm.folder / "odd name.db").write_text("mine")
    found, skipped = values(vllm.folder)
    assert found["vllm:generation_tokens_total", "0", None] == 20
    assert skipped == 0


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FilesUnavailable, match="nowhere cannot be read: No such file"):
        values(tmp_path / "nowhere")


def test_files_without_end_are_refused_with_what_would_help(vllm):
    vllm.start()
    with pytest.raises(FilesUnavailable, match="at most 1: wipe it between starts"):
        values(vllm.folder, files_limit=1)
    with pytest.raises(FilesUnavailable, match="at most 1000: wipe it between starts"):
        values(vllm.folder, limit_bytes=1000)


def test_links_and_pipes_of_such_names_are_not_read(vllm):
    vllm.start("0", 2)
    (vllm.folder / "counter_1.db").symlink_to("/dev/zero")
    os.mkfifo(vllm.folder / "counter_2.db")
    (vllm.folder / "counter_3.db").mkdir()
    found, skipped = values(vllm.folder)
    assert found["vllm:generation_tokens_total", "0", None] == 20
    assert skipped == 0
