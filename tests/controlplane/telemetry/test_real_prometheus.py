"""A real Prometheus writes to a real web process as a node's collector, and scrapes it back by federation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from tests.controlplane.telemetry.upstreams import RealServer
from tests.services import wait_for
from tests.web.site import Site, running_site
from wire import PROTOCOL

NODE = "rack1-gpu01"
CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s, external_labels: {{node: {node}}}}}
remote_write:
- url: {site}/prometheus/api/v1/write
  authorization: {{credentials: {writer}}}
  metadata_config: {{send_interval: 1s}}
scrape_configs:
- {{job_name: self, static_configs: [{{targets: ['{own}']}}]}}
- job_name: federation
  honor_labels: true
  metrics_path: /prometheus/federate
  params: {{'match[]': ['go_goroutines']}}
  authorization: {{credentials: {reader}}}
  static_configs: [{{targets: ['{host}']}}]
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture(scope="module")
def reader(site: Site) -> str:
    return site.command("create-token", "vera", "reads", "--role", "viewer")


@pytest.fixture(scope="module")
def prometheus(site: Site, reader: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("prometheus")
    server = RealServer("prometheus", folder)
    told = {"site": site.url, "host": site.url.removeprefix("http://"), "own": server.host, "node": NODE}
    config = CONFIG.format(**told, writer=_enrol(site), reader=reader)
    (folder / "prometheus.yml").write_text(config)
    with server.running():
        yield f"{server.base}/api/v1"


def _enrol(site: Site) -> str:
    secret = site.rest.post("/targets/join-tokens", {"kind": "node", "name": NODE})["secret"]
    body = {"join_token": secret, "kind": "node", "name": NODE, "version": "0.1.0", "protocol": PROTOCOL}
    return str(site.rest.post("/targets/enrol", body)["token"])


def _data(url: str, path: str, token: str = "", **asked: Any) -> Any:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with urlopen(Request(f"{url}/{path}?{urlencode(asked)}", headers=headers)) as answer:
        return json.load(answer)["data"]


def test_a_prometheus_writes_and_reads_back(site, reader, prometheus):
    ours = f"{site.url}/prometheus/api/v1"
    query = 'count(go_goroutines{job="self"})'

    def counted() -> Any:
        return _data(ours, "query", reader, query=query)["result"]

    (row,) = wait_for(counted, 30, "a sample of the Prometheus' own")
    assert row["value"][1] == "1"
    (labels,) = _data(ours, "series", reader, **{"match[]": "go_goroutines"})
    assert (labels["node"], labels["job"]) == (NODE, "self")

    # Metadata comes in bodies of its own.
    told = wait_for(lambda: _data(ours, "metadata", reader, metric="go_goroutines"), 30, "metadata")
    assert told == _data(prometheus, "metadata", metric="go_goroutines")

    # By federation the same series comes back, under the labels that it has here.
    back = f'go_goroutines{{node="{NODE}",job="self"}}'
    assert wait_for(lambda: _data(prometheus, "query", query=back)["result"], 30, "a federated sample")

    # Its samples are then written a second time, and taken. Nothing was refused.
    failed = '{__name__=~"prometheus_remote_storage_(samples|metadata)_failed_total"}'
    rows = _data(prometheus, "query", query=failed)["result"]
    assert {row["value"][1] for row in rows} == {"0"}
    sent = "prometheus_remote_storage_metadata_total > 0"
    assert wait_for(lambda: _data(prometheus, "query", query=sent)["result"], 30, "metadata that was taken")
