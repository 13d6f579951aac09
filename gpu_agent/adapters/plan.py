"""What to do about an engine's adapters. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Plan:
    """By name: `unload` first, then `load` from its folder. `problems`: what shall be otherwise and is not for us."""

    load: dict[str, str] = field(default_factory=dict)
    unload: list[str] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)


def plan(desired: Mapping[str, str], loaded: Mapping[str, str], own: Mapping[str, str]) -> Plan:
    """`desired`, `own`: name → folder, as it is configured. `loaded`: name → where the engine says that it is from.

    `own`: those that were loaded here, by this, and nothing else is unloaded.
    """
    load, unload, problems = {}, [], {}
    for name, folder in desired.items():
        if name not in loaded:
            load[name] = folder
        elif name in own and own[name] != folder:
            unload.append(name)
            load[name] = folder
        elif name not in own and loaded[name] not in ("", folder):
            problems[name] = f"somebody else loaded it from {loaded[name]}; unload it, or correct the pool"
    unload += [name for name in own if name in loaded and name not in desired]
    return Plan(load, unload, problems)
