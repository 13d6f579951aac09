"""The embedded store's history, carried over to an external server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.telemetry import export as exporting
from controlplane.telemetry.export import CannotExport, Exported, export
from controlplane.telemetry.sending import post
from controlplane.telemetry.store.packing import pack
from tests.controlplane.telemetry.filling import named
from tests.controlplane.telemetry.upstreams import KINDS, RealServer, ToldServer, rows, use
from tests.controlplane.test_cli import headworks
from wire.pace import Pace
from wire.write_body import STALE, Series, encode

QUICK = Pace(retry_base_seconds=0.001, retry_cap_seconds=0.001)
MINUTE_MS = 60_000


@pytest.fixture
def server() -> Iterator[ToldServer]:
    with ToldServer() as told:
        yield told


def history(now_ms: int) -> list[Series]:
    """50 minutes of two series; one of them ended."""
    times = [now_ms - back * 15_000 for back in range(200, 0, -1)]
    return [
        named("kept", [(time_ms, number / 4) for number, time_ms in enumerate(times)]),
        named("ended", [*((time_ms, 1.0) for time_ms in times[:100]), (times[100], STALE)]),
    ]


def carried(store: Path, server: ToldServer | RealServer, until_ms: int) -> Exported:
    return export(store, f"{server.base}/api/v1/write", until_ms, print, QUICK)


def samples(server: ToldServer, name: str) -> list[tuple[int, float]]:
    return [sample for series in server.taken if series.labels["__name__"] == name for sample in series.samples]


@pytest.mark.parametrize("kind", KINDS)
def test_a_real_server_answers_with_the_history(kind, tmp_path, own_store, fill, now_ms, monkeypatch, ask):
    fill(history(now_ms))
    pack(own_store, now_ms - 20 * MINUTE_MS)
    queries = [{"query": text, "time": now_ms / 1000} for text in ("kept[1h]", "ended[1h]")]
    before = [ask("query", **each).json()["data"]["result"] for each in queries]
    server = RealServer(kind, tmp_path)
    with server.running():
        # The move comes first: what is measured now is with the server already.
        post(f"{server.base}/api/v1/write", encode([named("kept", [(now_ms, 1.0)])]))
        done = carried(own_store, server, now_ms)
        assert (done.samples, done.refused) == (301, 0)
        use(monkeypatch, server.base)
        rows(server, "kept == 1", now_ms)
        after = [ask("query", **each).json()["data"]["result"] for each in queries]
    assert _points(after[0])[:-1] == _points(before[0])
    assert _points(after[1]) == _points(before[1])


def _points(result: Any) -> list[tuple[float, float]]:
    """VictoriaMetrics shows the marker that ends a series as well."""
    (series,) = result
    return [(at, float(value)) for at, value in series["values"] if value != "NaN"]


def test_every_sample_is_sent_once_and_in_order(own_store, fill, now_ms, server):
    given = history(now_ms)
    fill(given)
    assert carried(own_store, server, now_ms).through_ms == now_ms
    assert samples(server, "kept") == given[0].samples
    assert [time_ms for time_ms, _ in samples(server, "ended")] == [time_ms for time_ms, _ in given[1].samples]
    server.taken.clear()
    fill([named("kept", [(now_ms + 15_000, 7.0)])])
    carried(own_store, server, now_ms + MINUTE_MS)
    assert samples(server, "kept") == [(now_ms + 15_000, 7.0)]


def test_a_run_that_was_cut_off_goes_on(own_store, fill, now_ms, server, monkeypatch):
    monkeypatch.setattr(exporting, "_TRIES", 2)
    monkeypatch.setattr(exporting, "_BODY_SAMPLES", 10)
    given = history(now_ms)
    fill(given)
    server.answer = lambda series: (204, {}, b"") if server.requests < 4 else (503, {}, b"")
    with pytest.raises(CannotExport, match="503"):
        carried(own_store, server, now_ms)
    server.always(204)
    carried(own_store, server, now_ms)
    assert sorted(set(samples(server, "kept"))) == given[0].samples
    # At most a quarter of an hour came twice.
    assert len(samples(server, "kept")) <= len(given[0].samples) + 60


def test_samples_that_are_refused_are_counted(own_store, fill, now_ms, server, monkeypatch):
    monkeypatch.setattr(exporting, "_BODY_SAMPLES", 1)
    fill(history(now_ms))
    server.answer = lambda series: (400 if any(each.labels["__name__"] == "ended" for each in series) else 204, {}, b"")
    done = carried(own_store, server, now_ms)
    assert (done.samples, done.refused) == (301, 101)


def test_an_address_that_takes_no_writes_is_named_and_nothing_counts_as_sent(
    own_store, fill, now_ms, server, monkeypatch
):
    monkeypatch.setattr(exporting, "_TRIES", 2)
    fill(history(now_ms))
    server.always(400)
    with pytest.raises(CannotExport, match="takes no remote write"):
        carried(own_store, server, now_ms)
    server.always(204)
    assert carried(own_store, server, now_ms).samples == 301


def test_another_server_gets_all_of_it(own_store, fill, now_ms, server):
    fill(history(now_ms))
    carried(own_store, server, now_ms)
    with ToldServer() as other:
        assert carried(own_store, other, now_ms).samples == 301
        assert len(other.taken) > 0


def test_a_position_that_cannot_be_read_is_none(own_store, fill, now_ms, server):
    fill(history(now_ms))
    own_store.with_name("metrics.exported.json").write_text("{")
    assert carried(own_store, server, now_ms).samples == 301


def test_hours_without_samples_are_passed_over(own_store, fill, now_ms, server):
    given = [(now_ms - hours * 60 * MINUTE_MS, float(hours)) for hours in (30, 2)]
    fill([named("rare", given)])
    assert carried(own_store, server, now_ms).through_ms == now_ms
    assert samples(server, "rare") == given


def test_the_command_carries_what_the_store_holds(tmp_path, own_store, fill, now_ms, server):
    environment = {"HEADWORKS_DATA_DIR": str(tmp_path), "HEADWORKS_REMOTE_WRITE_URL": f"{server.base}/api/v1/write"}
    assert headworks("migrate", **environment).returncode == 0
    without = headworks("export-metrics", **environment)
    assert (without.returncode, without.stdout) == (1, "")
    assert "no samples" in without.stderr
    fill(history(now_ms))
    done = headworks("export-metrics", **environment)
    assert (done.returncode, done.stdout) == (0, "301 samples were sent, of which 0 were refused\n")
    assert len(samples(server, "kept")) == 200
    nowhere = headworks("export-metrics", HEADWORKS_DATA_DIR=str(tmp_path))
    assert nowhere.returncode == 2
    assert "HEADWORKS_REMOTE_WRITE_URL" in nowhere.stderr


def test_an_empty_store_has_nothing_to_carry(own_store, fill, now_ms, server):
    fill([])
    assert carried(own_store, server, now_ms).samples == 0
    assert server.requests == 0
