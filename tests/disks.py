"""A small disk of its own for a test that fills one, or has it read-only."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(place: Path, options: str) -> Iterator[Path]:
    """`place`, as a tmpfs with these options of mount(8). Skips the test where that may not be mounted."""
    place.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a small disk")
    try:
        yield place
    finally:
        # Lazily, as whatever is tested may hold its file still.
        subprocess.run(["umount", "--lazy", str(place)], check=True)
