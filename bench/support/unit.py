"""What a systemd unit of deploy/ sets, so that a benchmark runs a program as a node does."""

from __future__ import annotations

import shlex
from pathlib import Path

UNITS = Path(__file__).resolve().parents[2] / "deploy/systemd"


def environment_of(unit: str, *, units: Path = UNITS) -> dict[str, str]:
    """The unit's `Environment=`, less what names a folder of systemd's (%), which a benchmark has its own for."""
    found: dict[str, str] = {}
    for line in (units / unit).read_text().splitlines():
        name, _, value = line.partition("=")
        if name == "Environment":
            found |= dict(setting.split("=", 1) for setting in shlex.split(value) if "%" not in setting)
    return found
