from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_agent.engines.memory_exit import last_memory_exit
from gpu_agent.engines.start_phases import read_log

GIB = 2**30
BEGINNING = "INFO 11-30 00:06:32 [api_utils.py:286] vLLM API server version 0.32.0\n"
ARGUMENTS = "INFO 11-30 00:06:32 [api_utils.py:286] non-default args: {'port': 18000}\n"
# As PyTorch 2.9 words it, in vLLM's log.
FAILED = (
    "(EngineCore pid=9) ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a "
    "total capacity of 79.15 GiB of which 15.02 GiB is free. Process 9 has 64.12 GiB memory in use. Of the allocated "
    "memory 60.00 GiB is allocated by PyTorch, and 2.50 GiB is reserved by PyTorch but unallocated. If reserved but "
    "unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.\n"
)


def test_what_was_asked_for_and_what_was_there_stand_on_one_line():
    found = last_memory_exit(f"{FAILED}INFO 300.00 MiB is free\n".encode())
    assert found is not None
    assert found.parts == {"asked": 4 * GIB, "free": int(15.02 * GIB), "unallocated": int(2.5 * GIB)}


def test_an_older_version_tells_less():
    found = last_memory_exit(b"RuntimeError: CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0)")
    assert found is not None
    assert found.parts == {"asked": 512 * 2**20}


def test_the_last_one_counts():
    found = last_memory_exit(FAILED.encode() + b"CUDA out of memory. Tried to allocate 2 bytes.\n")
    assert found is not None
    assert found.parts == {"asked": 2}


@pytest.mark.parametrize(
    ("log", "ended", "known"),
    [
        (BEGINNING + FAILED + BEGINNING, True, True),
        # One start tells of itself in two lines.
        (BEGINNING + ARGUMENTS + FAILED + BEGINNING + ARGUMENTS, True, True),
        (FAILED + ARGUMENTS, True, True),
        # It was started again since, for another reason.
        (BEGINNING + FAILED + BEGINNING + BEGINNING, False, True),
        # It failed since its last start: that run goes on, or has not been seen to end.
        (BEGINNING + FAILED, False, True),
        (BEGINNING, False, True),
        # The log begins later than any start.
        (FAILED, False, False),
    ],
)
def test_only_the_run_before_the_last_start_counts(tmp_path, log, ended, known):
    file = tmp_path / "vllm.log"
    file.write_text(log)
    read = read_log(file)
    assert (read.memory_exit is not None, read.began) == (ended, known)


@given(st.binary() | st.lists(st.sampled_from([FAILED, BEGINNING, ARGUMENTS, "of which x GiB is free"])).map(
    lambda parts: "".join(parts).encode()
))  # fmt: skip
def test_any_text_can_be_read(text):
    found = last_memory_exit(text)
    assert found is None or found.asked_bytes >= 0
