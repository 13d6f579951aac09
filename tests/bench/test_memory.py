"""What processes hold, as the benchmark of the agent counts it."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack

from bench.support.memory import memory_of, resident_together

FILE_BYTES = 40_000_000
READER = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    sum(mapped[::mmap.PAGESIZE])
print("read", flush=True)
sys.stdin.read()
"""
SLACK_BYTES = 4_000_000


def test_a_page_of_a_file_that_two_processes_map_is_held_once(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"x" * FILE_BYTES)
    with ExitStack() as stack:
        readers = []
        for _ in range(2):
            command = [sys.executable, "-c", READER, str(file)]
            reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            stack.enter_context(reader)
            stack.callback(reader.kill)
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"read\n"
            readers.append(reader.pid)
        first, second = (memory_of(pid).resident for pid in readers)
        alone = resident_together(readers[:1])
        both = resident_together(readers)
    assert FILE_BYTES < alone < first + SLACK_BYTES
    assert abs(alone - first) < SLACK_BYTES, "of one process it is what the kernel calls resident"
    assert both < first + second - FILE_BYTES + SLACK_BYTES
    assert both > max(first, second), "each has pages of its own"
