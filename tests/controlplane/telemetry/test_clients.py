"""Clients made for Prometheus, against this one: promtool, Grafana's calls, a plain HTTP client."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from controlplane.core.models import Role
from tests.controlplane.telemetry.filling import named
from tests.services import service_binary

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def token(transactional_db: None, rest_of: Any) -> str:
    header: str = rest_of(Role.VIEWER).client.defaults["HTTP_AUTHORIZATION"]
    return header


@pytest.fixture
def with_token(live_server: Any, token: str) -> Iterator[str]:
    """Address of a proxy that adds the token: Debian's promtool sends none."""

    class Handler(BaseHTTPRequestHandler):
        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0))) or None
            headers = {"Authorization": token, "Content-Type": self.headers.get("content-type", "")}
            try:
                answer = urlopen(Request(live_server.url + self.path, body, headers, method=self.command))
            except HTTPError as error:
                answer = error
            with answer:
                self.send_response(answer.status or 0)
                self.end_headers()
                self.wfile.write(answer.read())

        do_GET = do_POST = _pass_on

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/prometheus"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def promtool(with_token: str) -> Callable[..., str]:
    program = service_binary("promtool")

    def query(kind: str, *words: str) -> str:
        flags = [word for word in words if word.startswith("--")]
        rest = [word for word in words if not word.startswith("--")]
        argv: list[str | Path] = [program, "query", kind, *flags, with_token, *rest]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        return str(done.stdout).strip()

    return query


@pytest.fixture
def filled(fill: Any, now_ms: int) -> None:
    fill([named("a", [(now_ms - 15_000, 1.0), (now_ms, 2.5)], gpu="0"), named("a", [(now_ms, 4.0)], gpu="1")])


def test_promtool_asks_for_values(promtool, filled, now_ms):
    at = str(now_ms // 1000)
    assert promtool("instant", f"--time={at}", "sum(a)") == f"{{}} => 6.5 @[{at}]"
    said = promtool("range", f"--start={now_ms // 1000 - 15}", f"--end={at}", "--step=15s", 'a{gpu="0"} * 2')
    assert said.splitlines() == ['{gpu="0", node="n-1"} =>', f"2 @[{now_ms // 1000 - 15}]", f"5 @[{at}]"]


def test_promtool_asks_for_series_and_labels(promtool, filled):
    assert sorted(promtool("series", "--match=a").splitlines()) == [
        '{__name__="a", gpu="0", node="n-1"}',
        '{__name__="a", gpu="1", node="n-1"}',
    ]
    assert promtool("labels", "gpu").splitlines() == ["0", "1"]


def test_promtool_is_told_what_is_wrong(with_token):
    argv = [service_binary("promtool"), "query", "instant", with_token, "sum("]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    assert done.returncode != 0
    assert "bad_data" in done.stderr


@pytest.fixture
def call(live_server: Any, token: str) -> Callable[..., Any]:
    """`data` of an answer; parameters as a list go into a form, others into the address."""

    def send(path: str, *, form: list[tuple[str, str]] | None = None, **asked: Any) -> Any:
        url = f"{live_server.url}/prometheus/api/v1/{path}?{urlencode(asked, doseq=True)}"
        body = urlencode(form).encode() if form is not None else None
        with urlopen(Request(url, body, {"Authorization": token, **(FORM if form is not None else {})})) as answer:
            told = json.load(answer)
        assert told["status"] == "success"
        return told["data"]

    return send


def test_what_grafana_calls(call, filled, now_ms):
    """As a data source of type Prometheus does: queries as forms, with times in seconds and names of its own."""
    at, start = now_ms / 1000, now_ms / 1000 - 3600
    assert call("query", form=[("query", "1+1"), ("time", str(at))])["result"][1] == "2"
    shown = call("query_range", form=[("query", "a"), ("start", str(start)), ("end", str(at)), ("step", "15")])
    assert [row["metric"]["gpu"] for row in shown["result"]] == ["0", "1"]
    span = [("start", str(start)), ("end", str(at + 1))]
    assert call("labels", form=[*span, ("match[]", "a"), ("limit", "40000")]) == ["__name__", "gpu", "node"]
    assert call("label/gpu/values", start=start, end=at + 1, limit=40_000, **{"match[]": "a"}) == ["0", "1"]
    assert call("series", form=[*span, ("match[]", 'a{gpu="1"}')]) == [{"__name__": "a", "gpu": "1", "node": "n-1"}]
    assert call("metadata", limit=40_000) == {}
    assert call("status/buildinfo")["version"] == "3.0.0"


def test_the_python_client_finds_a_prometheus_where_it_may_read(live_server, token):
    """Its `check_prometheus_connection`."""
    with urlopen(Request(f"{live_server.url}/prometheus/", headers={"Authorization": token})) as answer:
        assert answer.status == HTTPStatus.OK
    with pytest.raises(HTTPError, match="401"):
        urlopen(f"{live_server.url}/prometheus/")


def test_what_the_python_client_calls(call, filled, now_ms):
    """prometheus-api-client asks by GET alone, and for metadata by matching all names."""
    at = now_ms / 1000
    assert call("label/__name__/values") == ["a"]
    assert [row["value"][1] for row in call("query", query="a", time=at)["result"]] == ["2.5", "4"]
    (row,) = call("query", query='a{gpu="0"}[60s]', time=round(at))["result"]
    assert [value for _, value in row["values"]] == ["1", "2.5"]
    asked = {"query": "sum(a)", "start": round(at), "end": round(at), "step": "15"}
    assert call("query_range", **asked)["result"][0]["values"] == [[at, "6.5"]]
