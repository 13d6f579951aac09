"""Modules compiled beforehand, as where they are installed: compiling at the start would count as memory in use."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path


def compiled(modules: Iterable[str], folder: Path) -> dict[str, str]:
    """An environment in which Python finds `modules`, and all that they import, compiled in `folder`."""
    environment = {"PYTHONPYCACHEPREFIX": str(folder), "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-c", f"import {', '.join(modules)}"]
    subprocess.run(command, check=True, env={**os.environ, **environment})
    return environment
