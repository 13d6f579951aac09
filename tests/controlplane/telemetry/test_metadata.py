"""What writers say of their metrics' families: kept, bounded, and answered as Prometheus answers it."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from cramjam import snappy

from controlplane.telemetry.own_metadata import OWN
from controlplane.telemetry.store import database
from controlplane.telemetry.store.database import connect
from controlplane.telemetry.store.metadata import keep, kept
from gateway.metrics import Metrics, Moment, MomentCollector
from gateway.quota.metrics import LedgerMoment
from tests.controlplane.telemetry.filling import named
from tests.controlplane.telemetry.upstreams import RealServer
from wire.remote_write import METRIC_TYPES, Metadata
from wire.remote_write_pb2 import WriteRequest
from wire.write_body import Series, key_of

METRICS_PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def body(metadata: Iterable[Metadata], *series: Series) -> bytes:
    request = WriteRequest()
    for family, kind, text, unit in metadata:
        number = METRIC_TYPES.index(kind)
        request.metadata.add(metric_family_name=family, type=number, help=text, unit=unit)
    for each in series:
        row = request.timeseries.add(labels=key_of(each.labels))
        for time_ms, value in each.samples:
            row.samples.add(timestamp=time_ms, value=value)
    return bytes(snappy.compress_raw(request.SerializeToString()))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """The metadata that a Prometheus knows of itself."""
    folder: Path = tmp_path_factory.mktemp("prometheus")
    server = RealServer("prometheus", folder)
    (folder / "prometheus.yml").write_text(
        "scrape_configs: [{job_name: self, scrape_interval: 1s, scrape_timeout: 1s, "
        f"static_configs: [{{targets: ['{server.host}']}}]}}]\n"
    )

    def get(**parameters: Any) -> Any:
        with urlopen(f"{server.base}/api/v1/metadata?{urlencode(parameters)}") as answer:
            return json.load(answer)

    with server.running() as process:
        process.wait_until(lambda: get()["data"], "a first scrape")
        yield get


def test_what_is_written_is_answered_as_prometheus_answers_it(theirs, node, ask):
    known = theirs()["data"]
    families = [Metadata(name, *(one[part] for part in ("type", "help", "unit"))) for name, (one,) in known.items()]
    assert node.send(body(families)).status_code == 204
    assert ask("metadata").json() == {"status": "success", "data": known}
    for asked in (
        {"metric": "go_goroutines"},
        {"metric": "nothing"},
        {"limit": 0},
        {"limit_per_metric": 1},
        {"limit_per_metric": 0},
        {"metric": "go_goroutines", "limit": 0},
        {"limit": -1},
    ):
        assert ask("metadata", **asked).json() == theirs(**asked), asked
    # Which ones, Prometheus leaves to chance.
    assert len(ask("metadata", limit=3).json()["data"]) == len(theirs(limit=3)["data"]) == 3


@pytest.mark.parametrize("name", ["limit", "limit_per_metric"])
def test_a_limit_that_is_no_number_is_refused(ask, name):
    answer = ask("metadata", **{name: "many"})
    assert (answer.status_code, answer.json()["errorType"]) == (400, "bad_data")
    assert name in answer.json()["error"]


def test_samples_and_metadata_come_in_one_body_and_the_last_writer_counts(node, pusher, ask, now_ms):
    before, after = Metadata("a", "gauge", "Before.", ""), Metadata("a", "counter", "After.", "bytes")
    assert node.send(body([before], named("a", [(now_ms, 2.0)]))).status_code == 204
    assert ask("query", query="a", time=now_ms / 1000).json()["data"]["result"][0]["value"][1] == "2"
    assert pusher("gateway", "gw-1").send(body([after])).status_code == 204
    assert ask("metadata").json()["data"] == {"a": [{"type": "counter", "help": "After.", "unit": "bytes"}]}


def bad(**fields: Any) -> bytes:
    request = WriteRequest()
    request.metadata.add(**{"metric_family_name": "a", **fields})
    return bytes(snappy.compress_raw(request.SerializeToString()))


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (bad(metric_family_name=""), "metadata_name"),
        (bad(metric_family_name="a-b"), "metadata_name"),
        (bad(type=8), "metadata_type"),
        (bad(type=-1), "metadata_type"),
        (bad(help="x" * 1025), "metadata_too_long"),
        (bad(unit="x" * 1025), "metadata_too_long"),
        (bad(metric_family_name="x" * 10_000_000), "metadata_too_long"),
    ],
)
def test_metadata_that_cannot_be_kept_is_refused_by_name(node, ask, raw, code):
    answer = node.send(raw)
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert len(answer.content) < 1000
    assert ask("metadata").json()["data"] == {}


def test_families_of_one_body_are_bounded(node):
    families = [Metadata(f"m{number}", "gauge", "", "") for number in range(10_001)]
    answer = node.send(body(families))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_much_metadata")


def test_of_too_many_families_those_told_of_longest_ago_go(own_store):
    first = [Metadata(f"m{number}", "gauge", "", "") for number in range(3)]
    keep(own_store, first, most=3)
    keep(own_store, [first[0], Metadata("new", "gauge", "", "")], most=3)
    assert {each.family for each in kept(own_store)} == {"m0", "m2", "new"}


def test_a_store_that_cannot_be_read_is_said_to_be(ask, own_store):
    own_store.write_bytes(b"not a database" * 1000)
    answer = ask("metadata")
    assert (answer.status_code, answer.json()["errorType"]) == (503, "unavailable")


def test_a_store_of_the_version_before_is_brought_up_to_date(own_store, monkeypatch, node, ask, now_ms):
    with monkeypatch.context() as before:
        before.setattr(database, "_VERSIONS", database._VERSIONS[:1])
        before.setattr(database, "VERSION", 1)
        connect(own_store, writing=True).close()
    assert node.send(body([Metadata("a", "gauge", "A.", "")], named("a", [(now_ms, 2.0)]))).status_code == 204
    assert ask("metadata").json()["data"] == {"a": [{"type": "gauge", "help": "A.", "unit": ""}]}
    with closing(sqlite3.connect(own_store)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (database.VERSION,)


def documented() -> dict[str, str]:
    """Types by name, from the tables of docs/metrics.md."""
    found: dict[str, str] = {}
    prefix = ""
    for line in METRICS_PAGE.read_text().splitlines():
        if head := re.match(r"\| (?:further )?series `(headworks_(?:\w+_)?)…`", line):
            prefix = head[1]
        elif not line.startswith("|"):
            prefix = ""
        elif prefix and (names := re.findall(r"`(\w+)`", line.split("|")[1])):
            kinds = re.findall(r"gauge|counter|histogram", line.split("|")[2])
            # One type for all of a row's names, or one for each.
            kinds = kinds if len(kinds) == len(names) else kinds[:1] * len(names)
            found |= {prefix + name: kind for name, kind in zip(names, kinds, strict=True)}
    return found


def test_the_table_of_our_own_families_is_that_of_the_documentation():
    told = documented()
    assert len(told) > 80
    known = {family: each.kind for family, each in OWN.items()}
    assert told.items() <= known.items()
    # The gateway's are held to the gateway itself.
    assert [family for family in known.keys() - told.keys() if not family.startswith("headworks_gateway_")] == []


def test_the_table_says_of_gateways_families_what_their_own_page_says():
    nothing = LedgerMoment(is_shared=False, requests_shared=0, requests_local=0, waiting=0, lapsed=0)
    moment = Moment(
        revision=1, connected=True, draining=False, in_flight=0, persist_errors=0, engines=[], pools=[], looks=[],
        ledger=nothing,
    )  # fmt: skip
    families = chain(Metrics().families.registry.collect(), MomentCollector(moment).collect())
    told = {
        family.name + "_total" * (family.type == "counter"): (family.type, family.documentation) for family in families
    }
    own = {family: (each.kind, each.help) for family, each in OWN.items() if family.startswith("headworks_gateway_")}
    assert own == told


def test_our_own_families_are_answered_once_they_have_series(ask, fill, now_ms, node):
    fill([named("headworks_engine_up", [(now_ms, 1.0)]), named("headworks_engine_ttft_seconds_count", [(now_ms, 1.0)])])
    told = ask("metadata").json()["data"]
    assert {family: one["type"] for family, (one,) in told.items()} == {
        "headworks_engine_ttft_seconds": "histogram",
        "headworks_engine_up": "gauge",
    }
    said = Metadata("headworks_engine_up", "gauge", "As a writer has it.", "")
    assert node.send(body([said])).status_code == 204
    (one,) = ask("metadata", metric="headworks_engine_up").json()["data"]["headworks_engine_up"]
    assert one["help"] == "As a writer has it."
