"""Acts on the lab's engines, by their nodes' agents and one after another, so that nobody's stream is cut."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bench.support.control_plane import wait_until
from controlplane.rest_client import Rest

_OPEN = ("waiting", "running")
_LIMIT_SECONDS = 90.0
_DRAIN = {"limit_seconds": 60}


def wait_for_acts(rest: Rest) -> None:
    """Raises RuntimeError where they do not end in time."""

    def is_open() -> bool:
        return any(act["state"] in _OPEN for act in rest.get("/acts", limit=50)["items"])

    if not wait_until(lambda: not is_open(), _LIMIT_SECONDS):
        raise RuntimeError(f"acts did not end within {_LIMIT_SECONDS:g} s")


def restart(rest: Rest, names: Iterable[str], arguments: Mapping[str, Any] | None = None) -> None:
    """Drain, restart, put back, each before the next. Raises RuntimeError for one that does not serve again."""
    for name in names:
        rest.post("/acts", {"engine": name, "action": "drain", "arguments": _DRAIN})
        asked = {"engine": name, "action": "restart", "arguments": {"arguments": dict(arguments or {})}}
        act = rest.post("/acts", asked)["item"]["id"]
        wait_for_acts(rest)
        rest.post(f"/engines/{name}/uncordon")
        ended = rest.get(f"/acts/{act}")
        if ended["state"] != "done":
            raise RuntimeError(f"the restart of {name} is {ended['state']}: {ended['detail']}")
