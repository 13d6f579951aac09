"""Writes checked and passed on to, and queries answered by, a real Prometheus and a real VictoriaMetrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from controlplane.telemetry import query
from controlplane.telemetry.promql.errors import BadQuery, Unavailable
from controlplane.telemetry.results import Sample
from tests.controlplane.telemetry.filling import named
from tests.services import Process, answers_ok, free_port, service_binary, wait_for
from wire.write_body import Series

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder: Path = tmp_path_factory.mktemp("prometheus")
    (folder / "prometheus.yml").write_text("global: {}\n")
    port = free_port()
    argv: list[str | Path] = [service_binary("prometheus"), f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}",
            "--web.enable-remote-write-receiver"]  # fmt: skip
    with Process(argv, log=folder / "log") as process:
        process.wait_for_http(f"http://127.0.0.1:{port}/-/ready")
        base = f"http://127.0.0.1:{port}"
        yield {"HEADWORKS_PROMETHEUS_URL": base, "HEADWORKS_REMOTE_WRITE_URL": f"{base}/api/v1/write"}


@pytest.fixture(scope="module")
def victoria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder: Path = tmp_path_factory.mktemp("victoria")
    port = free_port()
    argv: list[str | Path] = [service_binary("victoria-metrics"), f"-storageDataPath={folder}/data",
            f"-httpListenAddr=127.0.0.1:{port}", "-search.latencyOffset=0s",
            "-search.disableCache"]  # fmt: skip
    with Process(argv, log=folder / "log") as process:
        process.wait_for_http(f"http://127.0.0.1:{port}/health")
        base = f"http://127.0.0.1:{port}"
        yield {"HEADWORKS_PROMETHEUS_URL": base, "HEADWORKS_REMOTE_WRITE_URL": f"{base}/api/v1/write"}


@pytest.fixture(params=["prometheus", "victoria"])
def external(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], list[Sample]]:
    """Both in turn. Calling it gives the rows of a query, once there are any."""
    settings = request.getfixturevalue(request.param)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)

    def rows(promql: str, at_ms: int) -> list[Sample]:
        if request.param == "victoria":
            # It shows what it took some seconds later, or when it is told to.
            assert answers_ok(f"{settings['HEADWORKS_PROMETHEUS_URL']}/internal/force_flush")
        return query.instant(promql, at_ms)

    return lambda promql, at_ms: wait_for(lambda: rows(promql, at_ms), 30, f"rows of {promql}")


def test_a_write_is_passed_on_and_read_back(external, node, ask, now_ms, own_store):
    assert node.push(named("passed_on", [(now_ms - 1000, 4.5)], gpu="1")).status_code == 204
    assert external("passed_on * 2", now_ms) == [({"node": "n-1", "gpu": "1"}, now_ms, 9.0)]
    data = ask("query", query="passed_on", time=now_ms / 1000).json()["data"]
    assert data["result"][0]["metric"] == {"__name__": "passed_on", "node": "n-1", "gpu": "1"}
    (series,) = query.range_("passed_on", now_ms - 1000, now_ms, 1000)
    assert (series.times_ms, series.values) == ([now_ms - 1000, now_ms], [4.5, 4.5])
    assert ask("label/gpu/values", **{"match[]": "passed_on"}).json()["data"] == ["1"]
    assert not own_store.exists()


def test_raw_samples_are_read_back(external, node, ask, now_ms):
    samples = [(now_ms - 2000, 1.5), (now_ms - 1000, 2.5)]
    assert node.push(named("raw", samples)).status_code == 204
    external("raw", now_ms)
    answer = ask("query", query="raw[5s]", time=now_ms / 1000)
    assert (answer.status_code, answer["content-type"]) == (200, "application/json")
    (series,) = answer.json()["data"]["result"]
    assert [(round(at * 1000), float(value)) for at, value in series["values"]] == samples


def test_a_foreign_series_is_not_passed_on(external, node, now_ms):
    mine = named("refused", [(now_ms, 1.0)])
    answer = node.push(mine, named("refused", [(now_ms, 1.0)], node="n-2"))
    assert answer.status_code == 400
    assert node.push(named("after", [(now_ms, 1.0)])).status_code == 204
    assert external("after", now_ms)
    assert query.instant("refused", now_ms) == []


def test_the_servers_own_refusal_is_passed_back(prometheus, monkeypatch, node, now_ms, ask):
    for name, value in prometheus.items():
        monkeypatch.setenv(name, value)
    assert node.push(named("twice", [(now_ms, 1.0)])).status_code == 204
    answer = node.push(named("twice", [(now_ms, 2.0)]))
    assert (answer.status_code, answer.json()["code"]) == (400, "upstream_refused")
    assert "duplicate sample" in answer.json()["detail"]
    refused = ask("query", query="sum(")
    assert (refused.status_code, refused.json()["errorType"]) == (400, "bad_data")
    with pytest.raises(BadQuery):
        query.instant("sum(", now_ms)


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> None:
    base = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("HEADWORKS_PROMETHEUS_URL", base)
    monkeypatch.setenv("HEADWORKS_REMOTE_WRITE_URL", f"{base}/api/v1/write")


def test_with_the_server_away_writers_send_again(away, node, now_ms, ask):
    answer = node.push(named("a", [(now_ms, 1.0)]))
    assert (answer.status_code, answer["retry-after"]) == (503, "5")
    refused = ask("query", query="a")
    assert (refused.status_code, refused.json()["errorType"]) == (503, "unavailable")
    with pytest.raises(Unavailable):
        query.instant("a", now_ms)


Answering = Callable[[int, dict[str, str], bytes], None]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answering]:
    """A server that answers everything as it was told last."""
    said: list[Any] = [200, {}, b""]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            status, headers, body = said
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    listening = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=listening.serve_forever)
    thread.start()
    base = f"http://127.0.0.1:{listening.server_port}"
    monkeypatch.setenv("HEADWORKS_PROMETHEUS_URL", base)
    monkeypatch.setenv("HEADWORKS_REMOTE_WRITE_URL", f"{base}/api/v1/write")

    def tell(status: int, headers: dict[str, str], body: bytes) -> None:
        said[:] = status, headers, body

    yield tell
    listening.shutdown()
    thread.join()
    listening.server_close()


@pytest.mark.parametrize(
    ("status", "headers", "expected", "retry_after"),
    [
        (200, {}, 204, None),
        (204, {}, 204, None),
        (400, {}, 400, None),
        (413, {}, 413, None),
        (429, {"Retry-After": "7"}, 429, "7"),
        (429, {"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}, 429, "5"),
        (500, {}, 503, "5"),
        (503, {"Retry-After": "9"}, 503, "9"),
        (401, {}, 503, "5"),
        (404, {}, 503, "5"),
        (301, {"Location": "http://127.0.0.1:9/"}, 503, "5"),
    ],
)
def test_a_writer_learns_whether_to_send_again(server, node, now_ms, status, headers, expected, retry_after):
    server(status, headers, b"because")
    answer = node.push(named("a", [(now_ms, 1.0)]))
    assert (answer.status_code, answer.get("retry-after")) == (expected, retry_after)


def test_series_are_checked_again_when_too_many_are_remembered(server, node, now_ms, monkeypatch):
    monkeypatch.setattr("controlplane.telemetry.forwarding._REMEMBERED_MAX", 2)
    server(204, {}, b"")
    for name in "abcab":
        assert node.push(named(name, [(now_ms, 1.0)])).status_code == 204
    assert node.push(Series({"__name__": "a", "node": "n-2"}, [(now_ms, 1.0)])).status_code == 400


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Content-Type": "text/html"}, b"<html>"),
        (JSON, b"[]"),
        (
            JSON,
            b'{"status": "success", "data": {"resultType": "vector", "result": [1]}}',
        ),
        (
            JSON,
            b'{"status": "success", "data": {"resultType": "matrix", "result": []}}',
        ),
    ],
)
def test_an_answer_of_another_form_is_named(server, now_ms, headers, body):
    server(200, headers, body)
    with pytest.raises(Unavailable):
        query.instant("a", now_ms)


def test_a_page_in_place_of_json_is_not_passed_on(server, viewer):
    server(200, {"Content-Type": "text/html"}, b"<script>")
    answer = viewer.client.post("/prometheus/api/v1/query", {"query": "a"})
    assert (answer.status_code, answer["content-type"]) == (503, "application/json")
