"""What a node's agent tells a site: its report, its metrics, its events. The form is the real one, the hardware not."""

from __future__ import annotations

import json
import time
import urllib.request
import uuid
from typing import Any

from tests.web.site import Site
from wire import PROTOCOL
from wire.write_body import CONTENT_ENCODING, CONTENT_TYPE, VERSION, VERSION_HEADER, Series, encode

GPUS = 8
MEMORY_BYTES = 80 << 30
NVLINKS = 18


class Agent:
    """A node of eight simulated GPUs that joined `site`. What it says is sent by the methods, never by itself."""

    def __init__(self, site: Site, name: str) -> None:
        self._site, self.name = site, name
        join_token = site.rest.post("/targets/join-tokens", {"kind": "node", "name": name})["secret"]
        request = {"join_token": join_token, "kind": "node", "name": name, "version": "0.1.0", "protocol": PROTOCOL}
        self._token = ""
        self._token = self._post("/api/v1/targets/enrol", request)["token"]

    def uuid(self, index: int) -> str:
        return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{self.name}.{index}')}"

    def report(self, *, lost: int | None = None, engines: list[dict[str, Any]] | None = None, **facts: Any) -> None:
        """The inventory; the GPU `lost` is off the bus. `facts`: other fields of the report."""
        gpus = [
            {
                "uuid": self.uuid(index),
                "index": index,
                "model": "NVIDIA H100 80GB HBM3",
                "memory_bytes": MEMORY_BYTES,
                "pci_bus_id": f"00000000:{index + 16:02X}:00.0",
                "simulated": True,
                "state": "lost" if index == lost else "ok",
            }
            for index in range(GPUS)
        ]
        report = {"version": "0.1.0", "driver_version": "570.124.06", "gpu_source": "simulated", "simulated": True}
        self._post("/api/v1/nodes/report", {**report, "gpus": gpus, "engines": engines or [], **facts})

    def push(self, engines: list[str], *, lost: int | None = None) -> None:
        """A sample of each value that pages show, as of now."""
        now_ms = int(time.time() * 1000)
        series = []
        for index in range(GPUS):
            if index != lost:
                labels = {"node": self.name, "gpu": str(index), "UUID": self.uuid(index)}
                values = {"UTIL": 40 + 7 * index, "TEMP": 52 + 3 * index}
                series += [_one(f"DCGM_FI_DEV_GPU_{name}", labels, value, now_ms) for name, value in values.items()]
                series.append(_one("DCGM_FI_DEV_FB_USED", labels, 61_000 + 900 * index, now_ms))
        for position, engine in enumerate(engines):
            labels = {"node": self.name, "engine": engine, "kind": "vllm", "model": "m", "pool": "p"}
            loads = {"kv_cache_usage_ratio": 0.62 + position / 5, "requests_running": 14, "requests_waiting": 3}
            series += [_one(f"headworks_engine_{name}", labels, value, now_ms) for name, value in loads.items()]
        self._write(series)

    def connect(self, engines: list[str], *, down: int | None = None, sliced: int | None = None) -> None:
        """All GPUs by 18 NVLinks over switches, four at each NUMA node, and which engine uses which.

        Two links of the GPU `down` are not up; the GPU `sliced` is cut into three MIG instances.
        """
        self._write(links(self.name, engines, int(time.time() * 1000), down=down, sliced=sliced))

    def _write(self, series: list[Series]) -> None:
        headers = {"Content-Type": CONTENT_TYPE, "Content-Encoding": CONTENT_ENCODING, VERSION_HEADER: VERSION}
        self._post("/prometheus/api/v1/write", encode(series), headers)

    def say(self, kind: str, subject: str, severity: str, detail: str) -> None:
        """One event, as of now."""
        event = {"id": str(uuid.uuid4()), "at": int(time.time() * 1000), "node": self.name, "kind": kind}
        self._post("/api/v1/events", [{**event, "subject": subject, "severity": severity, "detail": detail}])

    def _post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Any:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        authorization = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        sent = {"Content-Type": "application/json", **authorization, **(headers or {})}
        request = urllib.request.Request(f"{self._site.url}{path}", raw, sent)
        with urllib.request.urlopen(request, timeout=20) as answer:
            text = answer.read()
        return json.loads(text) if text else None


def _one(name: str, labels: dict[str, str], value: float, at_ms: int) -> Series:
    return Series({"__name__": name, **labels}, [(at_ms, value)])


def links(
    node: str, engines: list[str], at_ms: int, *, down: int | None = None, sliced: int | None = None
) -> list[Series]:
    """The series by which an agent tells how its GPUs are connected."""
    found = []

    def add(name: str, gpu: int, value: float, **labels: str) -> None:
        found.append(_one(name, {"node": node, "gpu": str(gpu), **labels}, value, at_ms))

    for gpu in range(GPUS):
        add("headworks_gpu_numa_node", gpu, gpu // 4)
        for link in range(NVLINKS):
            add("headworks_gpu_nvlink_up", gpu, float(gpu != down or link > 1), link=str(link))
        for peer in range(GPUS):
            if peer != gpu:
                add("headworks_gpu_topology_info", gpu, 1, peer=str(peer), link=f"NV{NVLINKS - 2 * (gpu == down)}")
        if engines:
            add("headworks_gpu_processes", gpu, 1, engine=engines[gpu * len(engines) // GPUS])
    if sliced is not None:
        for number, (profile, mebibytes) in enumerate((("3g.40gb", 40_960), ("2g.20gb", 20_480), ("1g.10gb", 10_240))):
            add("DCGM_FI_DEV_FB_TOTAL", sliced, mebibytes, GPU_I_ID=str(number), GPU_I_PROFILE=profile)
    return found
