from __future__ import annotations

import os
import string

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_agent.acts.config_file import LIMIT_BYTES, read_config, with_arguments, write_config
from gpu_agent.acts.outcome import NotDone
from simulator.config_file import insert_config

FILE = """\
---
# The node's own.
model: /models/llama   # a comment
max_num_seqs: 256
served-model-name:
- llama
- llama-3
compilation-config:

  pass_config:
    fuse_allreduce_rms: true
# of the end
gpu-memory-utilization: 0.9
"""


def test_what_is_not_named_is_kept_as_it_stands():
    text, before = with_arguments(FILE, {"max-num-seqs": 128, "gpu-memory-utilization": "0.8", "enforce-eager": True})
    assert text.splitlines() == [
        "---",
        "# The node's own.",
        "model: /models/llama   # a comment",
        "max-num-seqs: 128",
        "served-model-name:",
        "- llama",
        "- llama-3",
        "compilation-config:",
        "",
        "  pass_config:",
        "    fuse_allreduce_rms: true",
        "# of the end",
        'gpu-memory-utilization: "0.8"',
        "enforce-eager: true",
    ]
    assert before == {"max-num-seqs": "256", "gpu-memory-utilization": "0.9"}


def test_a_list_and_a_nested_value_go_whole():
    text, before = with_arguments(FILE, {"served-model-name": "llama", "compilation-config": 3})
    assert "- llama" not in text
    assert "fuse_allreduce_rms" not in text
    assert before == {
        "served-model-name": "- llama - llama-3",
        "compilation-config": "pass_config: fuse_allreduce_rms: true",
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("  indented: 1\n", "line 1 .* belongs to no argument"),
        ("- item\n", "line 1 .* belongs to no argument"),
        ("seed: 1\nseed: 2\n", "line 2 .* seed stands there twice"),
        ("max-num-seqs: 1\nmax_num_seqs: 2\n", "stands there twice"),
        ("seed: 1\n---\nseed: 2\n", "line 2 .* it is not `argument: value`"),
        ("{seed: 1}\n", "it is not `argument: value`"),
        ('"seed": 1\n', "it is not `argument: value`"),
        ('name: "a\n  b"\n', "goes on in the next line"),
        ("list: [1,\n  2]\n", "goes on in the next line"),
        ("base: &anchor 1\n", "anchors and tags are not read"),
        ("\ufeffseed: 1\n", "it is not `argument: value`"),
    ],
)
def test_a_file_whose_lines_cannot_be_told_apart_is_refused(text, why):
    with pytest.raises(NotDone, match=why) as refusal:
        with_arguments(text, {"seed": 3})
    assert (refusal.value.state, refusal.value.reason) == ("refused", "config_file")


NAMES = st.text(string.ascii_lowercase, min_size=1, max_size=3)
VALUES = st.one_of(st.integers(-5, 5), st.booleans(), st.text(max_size=8).filter(str.isprintable))


@given(st.dictionaries(NAMES, VALUES, max_size=5), st.dictionaries(NAMES, VALUES, max_size=5))
def test_of_what_is_written_nothing_is_lost_and_the_new_value_holds(first, then):
    text, none = with_arguments("", first)
    changed, before = with_arguments(text, then)
    assert none == {}
    assert before.keys() == first.keys() & then.keys()
    lines = dict(line.split(": ", 1) for line in changed.splitlines() if line)
    assert {name: msgspec.json.decode(value) for name, value in lines.items()} == first | then


def test_the_simulated_engine_reads_what_is_written(tmp_path):
    file = tmp_path / "engine.yaml"
    file.write_text(with_arguments("seed: 1\n", {"max-num-seqs": 8, "dev-mode": True, "speed": "20"})[0])
    assert insert_config(["--config", str(file)])[:-2] == [
        "--seed", "1", "--max-num-seqs", "8", "--dev-mode", "--speed", "20",
    ]  # fmt: skip


def test_a_file_is_replaced_whole_with_its_mode_behind_its_link(tmp_path):
    real, link = tmp_path / "real.yaml", tmp_path / "link.yaml"
    real.write_text("seed: 1\n")
    real.chmod(0o640)
    link.symlink_to(real)
    before = real.stat().st_ino
    write_config(str(link), "seed: 2\n")
    assert link.is_symlink()
    assert real.read_text() == "seed: 2\n"
    assert real.stat().st_mode & 0o777 == 0o640
    assert real.stat().st_ino != before
    assert sorted(os.listdir(tmp_path)) == ["link.yaml", "real.yaml"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file away")
def test_a_file_of_another_owner_stays_its_owners(tmp_path):
    file = tmp_path / "engine.yaml"
    file.write_text("seed: 1\n")
    os.chown(file, 1234, 1235)
    write_config(str(file), "seed: 2\n")
    assert (file.stat().st_uid, file.stat().st_gid) == (1234, 1235)


def test_a_file_that_is_not_there_or_is_no_text_is_refused(tmp_path):
    absent, binary, long = tmp_path / "absent.yaml", tmp_path / "binary.yaml", tmp_path / "long.yaml"
    binary.write_bytes(b"\xff\xfe")
    long.write_bytes(b"#" * (LIMIT_BYTES + 1))
    for file in (absent, binary, long):
        with pytest.raises(NotDone, match="cannot be read"):
            read_config(str(file))
    with pytest.raises(NotDone, match="cannot be written"):
        write_config(str(absent), "seed: 1\n")
    assert not absent.exists()
