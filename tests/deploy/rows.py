"""Every setting of the project, by each variable that gives it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from docs.generate import SETTINGS_MODULES
from wire.settings import Setting

ROWS: dict[str, Setting[Any]] = {
    variable: row for module in SETTINGS_MODULES for row in import_module(module).SETTINGS for variable in row.variables
}
