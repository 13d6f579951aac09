"""A real Prometheus and a real vmagent write to a real web process by their own tokens; the first scrapes it back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from tests.controlplane.telemetry.upstreams import RealServer
from tests.services import Process, free_port, service_binary, wait_for
from tests.web.site import Site, running_site

CLUSTER, OTHER_CLUSTER = "east", "west"
CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s, external_labels: {{cluster: {cluster}}}}}
remote_write:
- url: {site}/prometheus/api/v1/write
  authorization: {{credentials: {writer}}}
  metadata_config: {{send_interval: 1s}}
scrape_configs:
- {{job_name: self, static_configs: [{{targets: ['{own}']}}]}}
- job_name: federation
  honor_labels: true
  metrics_path: /prometheus/federate
  params: {{'match[]': ['go_goroutines{{job="self"}}']}}
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
    told = {"site": site.url, "host": site.url.removeprefix("http://"), "own": server.host, "cluster": CLUSTER}
    config = CONFIG.format(**told, writer=_token(site, CLUSTER), reader=reader)
    (folder / "prometheus.yml").write_text(config)
    with server.running():
        yield f"{server.base}/api/v1"


@contextmanager
def vmagent(site: Site, tmp_path: Path, token: str, label: str) -> Iterator[Callable[[str], float]]:
    """It writes its own page under `label`; gives the sum of its counters of a name."""
    host = f"127.0.0.1:{free_port()}"
    config = tmp_path / "scrape.yml"
    config.write_text(
        f"scrape_configs: [{{job_name: own, scrape_interval: 1s, static_configs: [{{targets: ['{host}']}}]}}]"
    )
    flags = {
        "httpListenAddr": host,
        "promscrape.config": config,
        "remoteWrite.url": f"{site.url}/prometheus/api/v1/write",
        "remoteWrite.bearerToken": token,
        "remoteWrite.label": label,
        "remoteWrite.tmpDataPath": tmp_path / "data",
    }
    argv: list[str | Path] = [service_binary("vmagent"), *(f"-{name}={value}" for name, value in flags.items())]
    with Process(argv, log=tmp_path / "log") as process:
        process.wait_for_http(f"http://{host}/health")

        def counted(name: str) -> float:
            with urlopen(f"http://{host}/metrics") as page:
                lines = page.read().decode().splitlines()
            found = [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name}{{")]
            assert found, name
            return sum(found)

        yield counted


def _token(site: Site, cluster: str) -> str:
    return str(site.rest.post("/metric-writers", {"name": cluster, "matchers": {"cluster": cluster}})["secret"])


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
    (labels,) = _data(ours, "series", reader, **{"match[]": 'go_goroutines{job="self"}'})
    assert (labels["cluster"], labels["job"]) == (CLUSTER, "self")

    # Metadata comes in bodies of its own.
    told = wait_for(lambda: _data(ours, "metadata", reader, metric="go_goroutines"), 30, "metadata")
    # It may know the family from federation as well, where it has no type.
    (ours_of_it,) = told["go_goroutines"]
    assert ours_of_it in _data(prometheus, "metadata", metric="go_goroutines")["go_goroutines"]

    # By federation the same series comes back, under the labels that it has here.
    back = f'go_goroutines{{cluster="{CLUSTER}",job="self"}}'
    assert wait_for(lambda: _data(prometheus, "query", query=back)["result"], 30, "a federated sample")

    # Its samples are then written a second time, and taken. Nothing was refused.
    failed = '{__name__=~"prometheus_remote_storage_(samples|metadata)_failed_total"}'
    rows = _data(prometheus, "query", query=failed)["result"]
    assert {row["value"][1] for row in rows} == {"0"}
    sent = "prometheus_remote_storage_metadata_total > 0"
    assert wait_for(lambda: _data(prometheus, "query", query=sent)["result"], 30, "metadata that was taken")


def test_a_vmagent_writes(site, reader, tmp_path):
    ours = f"{site.url}/prometheus/api/v1"
    query = f'count_over_time(vm_app_uptime_seconds{{job="own",cluster="{OTHER_CLUSTER}"}}[1m]) > 1'
    with vmagent(site, tmp_path, _token(site, OTHER_CLUSTER), f"cluster={OTHER_CLUSTER}") as counted:
        assert wait_for(lambda: _data(ours, "query", reader, query=query)["result"], 30, "two samples of its own")
        assert counted("vmagent_remotewrite_packets_dropped_total") == 0


def test_what_a_vmagent_may_not_write_does_not_hold_up_the_rest(site, tmp_path):
    """It sends a body again for ever, and all others after it, unless the answer is 400."""
    with vmagent(site, tmp_path, _token(site, "north"), "cluster=south") as counted:
        wait_for(lambda: counted("vmagent_remotewrite_packets_dropped_total") > 1, 30, "bodies that are refused")
        assert counted("vmagent_remotewrite_retries_count_total") == 0
