"""One site in which every page has something to show, and the addresses of all of its pages."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

from controlplane.telemetry.store.database import FILE_NAME
from controlplane.telemetry.store.writer import Owner
from tests.controlplane.telemetry.filling import store
from tests.dashboards import fleet
from tests.web.agent import links
from tests.web.site import Site, running_site

GATEWAY, NODES = "edge-1", ("rack-1", "rack-2", "rack-3", "rack-4")
STEP_MS = 15_000
HOUR_MS = 3_600_000
# In a process of its own: Django has one database a process.
_FILL = """
import json

import django

django.setup()
from tests.web import whole_rows

print(json.dumps(whole_rows.fill()))
"""


class WholeSite:
    """`site`, whose telemetry is as new as the last `catch_up`.

    `pages`: name of each page → its path, filled in. `lists`: of them those that an empty site has too.
    """

    def __init__(self, site: Site, pages: dict[str, str], lists: dict[str, str]) -> None:
        self.site, self.pages, self.lists = site, pages, lists
        self._next_ms = 0
        self.catch_up()

    def catch_up(self) -> None:
        """Store what gateway and nodes have measured since the last time, or in the last hour."""
        now_ms = time.time_ns() // 1_000_000
        times_ms = [*range(self._next_ms or now_ms - HOUR_MS, now_ms, STEP_MS), now_ms]
        self._next_ms = now_ms + STEP_MS
        path = self.site.folder / "data" / FILE_NAME
        store(path, fleet.gateway_series(GATEWAY, times_ms), Owner("gateway", GATEWAY))
        for node, pool in zip(NODES, cycle(fleet.POOLS), strict=False):
            faults = {"down": 5, "sliced": 3} if node == NODES[1] else {}
            connected = links(node, [f"{node}-vllm"], now_ms, **faults)
            store(path, [*fleet.node_series(node, pool, times_ms), *connected], Owner("node", node))


@contextlib.contextmanager
def whole_site(folder: Path) -> Iterator[WholeSite]:
    told: dict[str, dict[str, str]] = {}

    def fill(site: Site) -> None:
        argv = [sys.executable, "-c", _FILL]
        environment = {**os.environ, **site.environment, "DJANGO_SETTINGS_MODULE": "controlplane.settings"}
        done = subprocess.run(argv, env=environment, text=True, stdout=subprocess.PIPE, check=True)
        told.update(json.loads(done.stdout.splitlines()[-1]))

    with running_site(folder, fill) as site:
        yield WholeSite(site, **told)
