"""The last measured values of GPUs and engines, for pages. A page never waits long for them: it shows "–" instead."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import datetime

from controlplane.telemetry import query
from controlplane.web.measured import FRESH_SECONDS, WAIT_SECONDS, Latest

# The names of the telemetry store → what pages call the value, as (kind of owner, field).
METRICS = {
    "DCGM_FI_DEV_GPU_UTIL": ("gpu", "utilization_percent"),
    "DCGM_FI_DEV_GPU_TEMP": ("gpu", "temperature_celsius"),
    "DCGM_FI_DEV_FB_USED": ("gpu", "memory_used_mebibytes"),
    "headworks_engine_kv_cache_usage_ratio": ("engine", "kv_usage_ratio"),
    "headworks_engine_requests_running": ("engine", "running"),
    "headworks_engine_requests_waiting": ("engine", "waiting"),
}
# Of a fleet whose nodes are all silent those that were asked of first; looking again brings the others.
_EARLIER_AT_ONCE, _EARLIER_KEPT = 16, 512


def _query(node: str) -> str:
    series = f'{{__name__=~"{"|".join(METRICS)}",node{node}}}'
    # The first part knows of ends, the second of age alone: an agent that was killed ends no series.
    return f"{series} and on (__name__, node, UUID, engine) last_over_time({series}[{FRESH_SECONDS}s])"


_QUERY = _query('!=""')

Values = Mapping[str, float]
_NONE: Values = {}


@dataclass(frozen=True)
class Readings:
    """Values by the owner's name: a GPU's node and UUID, an engine's name. `missing`: why there are none at all."""

    values: Mapping[tuple[str, ...], Values] = field(default_factory=dict)
    missing: str = ""

    def gpu(self, node: str, uuid: str) -> Values:
        return self.values.get(("gpu", node, uuid), _NONE)

    def engine(self, name: str) -> Values:
        return self.values.get(("engine", name), _NONE)


def read(at_ms: int, node: str = "") -> Readings:
    """One query for all owners, or for those of one node. Raises QueryError."""
    values: dict[tuple[str, ...], dict[str, float]] = {}
    for sample in query.instant(_query(f"={json.dumps(node)}") if node else _QUERY, at_ms):
        labels = sample.labels
        kind, name = METRICS.get(labels.get("__name__", ""), ("", ""))
        naming = ("node", "UUID") if kind == "gpu" else ("engine",)
        owner = (kind, *(labels.get(label, "") for label in naming))
        # NaN is no value.
        if kind and sample.value == sample.value:
            values.setdefault(owner, {})[name] = sample.value
    return Readings(values)


class Earlier:
    """What nodes told last before their agents fell silent. That does not change, and so is asked once for all."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "web-readings-earlier")
        self._asked: dict[tuple[str, datetime], Future[Readings]] = {}

    def get(self, moments: Mapping[str, datetime]) -> dict[str, Readings]:
        """Values by node, as of the moment of each. A node that nothing is known of yet is left out."""
        for node, moment in [each for each in moments.items() if each not in self._asked][:_EARLIER_AT_ONCE]:
            while len(self._asked) >= _EARLIER_KEPT:
                del self._asked[next(iter(self._asked))]
            self._asked[node, moment] = self._thread.submit(read, int(moment.timestamp() * 1000), node)
        wanted = {node: answer for node, moment in moments.items() if (answer := self._asked.get((node, moment)))}
        done = wait(wanted.values(), WAIT_SECONDS).done
        found = {}
        for node, answer in wanted.items():
            if answer in done and answer.exception() is None:
                found[node] = answer.result()
            elif answer in done:
                # The next page asks again.
                self._asked.pop((node, moments[node]), None)
        return found


latest = Latest("readings", read, lambda why: Readings(missing=why))
earlier = Earlier()
