"""The servers that `bench.telemetry` sets beside the embedded store: Debian's Prometheus and VictoriaMetrics."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.support.control_plane import answers, wait_for
from bench.support.fleet_metrics import Slice
from bench.support.processes import ending
from controlplane.demo.ports import free_port
from wire.write_body import CONTENT_ENCODING, CONTENT_TYPE, VERSION, VERSION_HEADER, Series, encode

_VICTORIA_FLUSH_SECONDS = 6.0
_HEADERS = {"Content-Type": CONTENT_TYPE, "Content-Encoding": CONTENT_ENCODING, VERSION_HEADER: VERSION}


@dataclass(frozen=True)
class Server:
    """A running server. `settled_bytes`: what its samples take on disk once it has compressed them."""

    url: str
    pid: int
    settled_bytes: Callable[[], int]

    @property
    def write_url(self) -> str:
        return f"{self.url}/api/v1/write"

    def fill(self, slices: Iterable[Slice]) -> int:
        """Samples that it took by remote write."""
        samples = 0
        for owner in slices:
            rows = zip(owner.labels, owner.values.tolist(), strict=True)
            body = encode([Series(labels, list(zip(owner.times_ms, row, strict=True))) for labels, row in rows])
            post(self.write_url, body, _HEADERS)
            samples += owner.values.size
        return samples


@contextmanager
def prometheus(folder: Path, config: Mapping[str, Any] | None = None) -> Iterator[Server]:
    """With `config` as its configuration, in its folder; JSON is YAML."""
    (folder / "prometheus.yml").write_text(json.dumps(config or {"global": {}}))
    port, data = free_port(), folder / "data"
    url = f"http://127.0.0.1:{port}"

    def settled_bytes() -> int:
        # A snapshot is a block of what waits in memory, as two hours later would be on disk.
        answer = json.loads(post(f"{url}/api/v1/admin/tsdb/snapshot", b"", {}))
        return size_of(data / "snapshots" / answer["data"]["name"])

    words = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={data}", "--web.enable-admin-api",
             f"--web.listen-address=127.0.0.1:{port}", "--web.enable-remote-write-receiver"]  # fmt: skip
    with _process(["prometheus", *words], folder / "log", f"{url}/-/ready") as pid:
        yield Server(url, pid, settled_bytes)


@contextmanager
def victoria_metrics(folder: Path) -> Iterator[Server]:
    port, data = free_port(), folder / "data"
    url = f"http://127.0.0.1:{port}"

    def settled_bytes() -> int:
        # What waits in memory is written within five seconds; a merge goes on by itself.
        time.sleep(_VICTORIA_FLUSH_SECONDS)
        post(f"{url}/internal/force_merge", b"", {})
        sizes = [-1, size_of(data)]
        while sizes[-1] != sizes[-2]:
            time.sleep(_VICTORIA_FLUSH_SECONDS)
            sizes.append(size_of(data))
        return sizes[-1]

    # By default it hides the newest half minute.
    words = [f"-storageDataPath={data}", f"-httpListenAddr=127.0.0.1:{port}", "-search.latencyOffset=0s"]
    with _process(["victoria-metrics", *words], folder / "log", f"{url}/health") as pid:
        yield Server(url, pid, settled_bytes)


SERVERS = {"prometheus": prometheus, "victoria-metrics": victoria_metrics}


def installed() -> list[str]:
    return [name for name in SERVERS if shutil.which(name)]


def size_of(folder: Path, pattern: str = "*") -> int:
    """Bytes of the files of such names under a folder."""
    return sum(path.stat().st_size for path in folder.rglob(pattern) if path.is_file())


def post(url: str, body: bytes, headers: dict[str, str]) -> bytes:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)
    connection.request("POST", parts.path, body, headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    if not http.HTTPStatus.OK <= answer.status < http.HTTPStatus.MULTIPLE_CHOICES:
        raise RuntimeError(f"{url}: {answer.status} {text[:300]!r}")
    return text


@contextmanager
def _process(command: list[str], log: Path, ready: str) -> Iterator[int]:
    with log.open("wb") as words:
        process = subprocess.Popen(command, stdout=words, stderr=words)
    with ending(process, 30):
        wait_for(lambda: answers(ready), command[0])
        yield process.pid
