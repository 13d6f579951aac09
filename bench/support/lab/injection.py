"""Let a pathology happen to the lab's fleet, and put everything back as it was on a healthy day."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Any

from bench.support.control_plane import wait_for
from bench.support.lab import acts
from bench.support.lab.clients import Clients
from bench.support.lab.fleet import Lab
from bench.support.lab.pathology import Pathology
from bench.support.lab.plan import ENGINES, NODES


class Injection:
    """At most one pathology at a time. `end` may be called at any time, also after a half of an injection."""

    def __init__(self, lab: Lab, clients: Clients) -> None:
        self._lab, self._clients = lab, clients
        self._healthy: dict[str, Any] = {}
        self._now: Pathology | None = None
        self._no_deploys = threading.Event()
        self._deploys: threading.Thread | None = None

    def begin(self, pathology: Pathology) -> None:
        lab = self._lab
        self._healthy, self._now = lab.rest.get("/config"), pathology
        for noun, key, changes in pathology.edits:
            if changes is None:
                lab.rest.call("DELETE", f"/{noun}/{key}")
            else:
                lab.rest.patch(f"/{noun}/{key}", changes)
        for name, limits in pathology.tenants.items():
            lab.add_tenant(name, limits, pathology.keys)
        self._start_engines(pathology)
        for event in pathology.gpus:
            lab.gpus.happen(event.node, event.gpus, event.what)
        self._clients.start(pathology.traffic)
        if pathology.deploys:
            self._no_deploys.clear()
            self._deploys = threading.Thread(target=self._deploy, args=(pathology,), name="deploys", daemon=True)
            self._deploys.start()

    def follow(self) -> None:
        """What an advice says: engines start as they should, with enough of what they need, and drained deploys."""
        if self._now is None:
            return
        self._end_deploys()
        for name in self._now.conditions:
            self._lab.engines.hold(name, [])
        changed = [name for name, engine in ENGINES.items() if self._lab.engines.configure(name, engine.arguments)]
        self._restart([name for name in changed if name in self._now.arguments])

    def _end_deploys(self) -> None:
        self._no_deploys.set()
        if self._deploys is not None:
            self._deploys.join()
            self._deploys = None

    def end(self) -> None:
        """Back to the base configuration, engines with their own arguments, GPUs that are well, no strangers."""
        lab, pathology = self._lab, self._now
        if pathology is None:
            return
        self._end_deploys()
        self._clients.stop(pathology.traffic)
        lab.gpus.recover()
        lab.rest.call("PUT", "/config", self._healthy, allow_removals="true")
        for noun, names in (("nodes", NODES), ("engines", ENGINES)):
            for row in lab.rest.get(f"/{noun}")["items"]:
                if row["name"] in names and row["cordoned"]:
                    lab.rest.post(f"/{noun}/{row['name']}/uncordon")
        changed = [name for name, engine in ENGINES.items() if lab.engines.configure(name, engine.arguments)]
        for name in pathology.conditions:
            lab.engines.hold(name, [])
        self._restart([name for name in changed if name in pathology.arguments])
        lab.gpus.tensor_parallel = {}
        lab.gpus.show_processes()
        self._now = None
        wait_for(self._serves, "the fleet to be well again")

    def _start_engines(self, pathology: Pathology) -> None:
        lab = self._lab
        for name in ENGINES:
            self._write(name, pathology)
        self._restart(list(pathology.arguments))
        for name, conditions in pathology.conditions.items():
            lab.engines.hold(name, conditions)
        for name in pathology.go_first:
            lab.engines.go_first(name)
        lab.gpus.tensor_parallel = {
            name: int(given.get("tensor-parallel-size", 1)) for name, given in pathology.arguments.items()
        }
        lab.gpus.show_processes()

    def _restart(self, names: Sequence[str]) -> None:
        """As a person would who knows what a drain is; one that died under it is started all the same."""
        try:
            acts.restart(self._lab.rest, names)
        except RuntimeError:
            self._lab.engines.restart(names)

    def _write(self, name: str, pathology: Pathology) -> None:
        """What the engine is started with from now on, whoever starts it."""
        arguments = {**ENGINES[name].arguments, **pathology.arguments.get(name, {})}
        lasting = pathology.conditions.get(name, ()) if pathology.lasting else ()
        self._lab.engines.configure(name, arguments, lasting)

    def _deploy(self, pathology: Pathology) -> None:
        for name in itertools.cycle(pathology.deploys):
            if self._no_deploys.wait(pathology.deploy_seconds):
                return
            # One that is on its way up has no streams that could be cut.
            if self._lab.engines.serves(name):
                self._lab.engines.terminate(name)

    def _serves(self) -> bool:
        return all(row["state"] == "up" for row in self._lab.rest.get("/engines")["items"])
