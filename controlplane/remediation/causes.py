"""What a fault of the hardware asks for: cause → action, as data that a site may override. Pure.

Sources: NVIDIA's XID catalogue and NVSentinel's practice, which disagree on single XIDs; hence the overrides. What is
not named here waits for a person: a repair that nobody knows to help is none. Only events that are critical come here;
those XIDs that no agent's own table calls so are for sites whose table does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

Action = Literal["none", "restart_engines", "reset_gpu", "reboot", "support"]
REPAIRS: frozenset[Action] = frozenset({"restart_engines", "reset_gpu", "reboot"})
ACTION_NAMES: tuple[Action, ...] = get_args(Action)


def _xids(action: Action, *numbers: int) -> dict[str, Action]:
    return {f"xid {number}": action for number in numbers}


ACTIONS: Mapping[str, Action] = {
    **_xids("reset_gpu", 46, 48, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 149, 155, 156, 158),
    **_xids("reboot", 79),
    **_xids("restart_engines", 94),
    **_xids("support", 54, 61, 122, 123, 124, 125, 157),
    "GpuLost": "reboot",
}


def cause_of(labels: Mapping[str, str]) -> str:
    """What an incident of the hardware is about: `xid 79`, or the name of its alert where there is no number."""
    for number in ("xid", "sxid"):
        if found := labels.get(number):
            return f"{number} {found}"
    return labels.get("alertname", "")


def action_for(cause: str, overrides: Mapping[str, Action]) -> Action:
    return overrides.get(cause) or ACTIONS.get(cause, "none")
