"""External metrics servers for the tests: the real ones, and one that answers as it is told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from controlplane.telemetry import query
from controlplane.telemetry.results import Sample
from tests.services import Process, answers_ok, free_port, service_binary, wait_for
from wire.remote_write import BadBody, Bounds, decode_series
from wire.write_body import Series

KINDS = ("prometheus", "victoria-metrics")


class RealServer:
    """A Prometheus or a VictoriaMetrics on an address of its own, which it keeps when it is started again."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self._folder = kind, folder
        self.host = f"127.0.0.1:{free_port()}"
        self.base = f"http://{self.host}"
        (folder / "prometheus.yml").write_text("storage: {tsdb: {out_of_order_time_window: 1h}}\n")

    @contextmanager
    def running(self) -> Iterator[Process]:
        argv: dict[str, list[str]] = {
            "prometheus": [f"--config.file={self._folder}/prometheus.yml", f"--storage.tsdb.path={self._folder}/data",
                f"--web.listen-address={self.host}", "--web.enable-remote-write-receiver"],
            "victoria-metrics": [f"-storageDataPath={self._folder}/data", f"-httpListenAddr={self.host}",
                "-search.latencyOffset=0s", "-search.disableCache", "-dedup.minScrapeInterval=1ms"],
        }  # fmt: skip
        with Process([service_binary(self.kind), *argv[self.kind]], log=self._folder / "log") as process:
            process.wait_for_http(f"{self.base}/{'health' if self.kind == 'victoria-metrics' else '-/ready'}")
            yield process

    @property
    def settings(self) -> dict[str, str]:
        return {"HEADWORKS_PROMETHEUS_URL": self.base, "HEADWORKS_REMOTE_WRITE_URL": f"{self.base}/api/v1/write"}

    def show(self) -> None:
        """VictoriaMetrics shows what it took some seconds later, or when it is told to."""
        if self.kind == "victoria-metrics":
            assert answers_ok(f"{self.base}/internal/force_flush")


Told = tuple[int, dict[str, str], bytes]


class ToldServer:
    """Answers every POST as `answer` says of its series, and keeps the series of what it answered with 2xx.

    A write that cannot be read is answered with 400, whatever `answer` says.
    """

    def __init__(self, port: int = 0) -> None:
        self.answer: Callable[[list[Series]], Told] = lambda series: (204, {}, b"")
        self.taken: list[Series] = []
        self.requests = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                writes = self.headers["content-type"] == "application/x-protobuf"
                outer.requests += 1
                try:
                    series = decode_series(body, Bounds()) if writes else []
                    status, headers, said = outer.answer(series)
                except BadBody as error:
                    status, headers, said = 400, {}, str(error).encode()
                else:
                    outer.taken += series if 200 <= status < 300 else []
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.base = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> ToldServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def always(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"because") -> None:
        self.answer = lambda series: (status, headers or {}, body)

    def names(self) -> list[str]:
        """Names of the series that were taken, in order."""
        return [series.labels["__name__"] for series in self.taken]


def use(monkeypatch: pytest.MonkeyPatch, base: str) -> None:
    """Have samples written to, and queries answered by, the server at `base`."""
    monkeypatch.setenv("HEADWORKS_PROMETHEUS_URL", base)
    monkeypatch.setenv("HEADWORKS_REMOTE_WRITE_URL", f"{base}/api/v1/write")


def rows(server: RealServer, promql: str, at_ms: int) -> list[Sample]:
    """What a query gives, once there is something."""

    def asked() -> list[Sample]:
        server.show()
        return query.instant(promql, at_ms)

    return wait_for(asked, 30, f"rows of {promql}")
