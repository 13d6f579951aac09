"""Modules compiled beforehand, as where they are installed: compiling at the start would count as memory in use."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType


def compiled(modules: Iterable[str], folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which Python finds `modules`, and all that they import, compiled in `folder`.

    `environment`: how they will run, as PYTHONOPTIMIZE asks for a compilation of its own; the answer holds it.
    """
    found = {**environment, "PYTHONPYCACHEPREFIX": str(folder), "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-c", f"import {', '.join(modules)}"]
    subprocess.run(command, check=True, env={**os.environ, **found})
    return found


def modules_of(package: ModuleType) -> Iterator[str]:
    """Names of all modules of a package, those that are imported late among them."""
    return (found.name for found in walk_packages(package.__path__, f"{package.__name__}."))
