"""docker-compose.yml as Compose reads it: anchors merged, variables replaced by their defaults."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker-compose.yml"
GPU_FILE = ROOT / "deploy/docker/compose.gpu.yml"
DOCKERFILE = ROOT / "deploy/docker/Dockerfile"
# What Compose replaces in a value; a name without a default would be a mistake that only a start finds.
VARIABLE = re.compile(r"\$\{(?P<name>\w+):-(?P<default>[^}]*)\}")


def read(file: Path = FILE) -> dict[str, Any]:
    """The file, as Compose takes it where the user gives no variable of theirs."""
    content = _filled(yaml.safe_load(file.read_text()))
    assert isinstance(content, dict)
    return content


def _filled(value: Any) -> Any:
    match value:
        case dict():
            return {name: _filled(part) for name, part in value.items()}
        case list():
            return [_filled(part) for part in value]
        case str():
            return VARIABLE.sub(lambda found: found["default"], value)
    return value


def ours() -> dict[str, dict[str, Any]]:
    """Services that run Headworks' own programs, by name."""
    services = read()["services"].items()
    return {name: service for name, service in services if service.get("command", [""])[0] in programs()}


def programs() -> dict[str, str]:
    """Headworks' commands, and the function that each runs (module:function)."""
    scripts: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    return scripts


def seconds(duration: str) -> int:
    """Compose's durations, as far as the file uses them: whole seconds."""
    found = re.fullmatch(r"(\d+)s", duration)
    assert found, f"{duration!r} is no number of seconds such as 15s"
    return int(found[1])
