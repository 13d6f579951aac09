"""Series recorded into a real Prometheus, from what it holds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.fields import from_epoch_ms
from controlplane.telemetry import forwarding, query
from controlplane.telemetry.models import RecordingGroup
from controlplane.telemetry.recording import rules
from controlplane.telemetry.recording.loop import evaluate_due
from tests.controlplane.telemetry.filling import named
from tests.services import Process, free_port, service_binary, wait_for
from wire.write_body import STALE, encode

INTERVAL_MS = 10_000
pytestmark = pytest.mark.django_db


@pytest.fixture
def prometheus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address for remote writes."""
    (tmp_path / "prometheus.yml").write_text("global: {}\n")
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    argv: list[str | Path] = [service_binary("prometheus"), f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}",
            "--web.enable-remote-write-receiver"]  # fmt: skip
    with Process(argv, log=tmp_path / "log") as process:
        process.wait_for_http(f"{base}/-/ready")
        monkeypatch.setenv("HEADWORKS_PROMETHEUS_URL", base)
        monkeypatch.setenv("HEADWORKS_REMOTE_WRITE_URL", f"{base}/api/v1/write")
        yield f"{base}/api/v1/write"


def test_what_is_recorded_and_what_has_ended_is_with_the_external_server(prometheus, own_store):
    now_ms = int(time.time() * 1000)
    second_ms = now_ms - 20_000 - now_ms % INTERVAL_MS
    first_ms = second_ms - INTERVAL_MS
    with unit_of_work(SYSTEM, "a test") as unit:
        rule = {"record": "pool:kv:max", "expr": "max by (pool) (kv)"}
        rules.replace(unit, {"groups": [{"name": "fleet", "interval": "10s", "rules": [rule]}]})
    RecordingGroup.objects.update(next_ms=first_ms)
    series = [
        named("kv", [(first_ms - 1000, 0.5), (first_ms + 1000, STALE)], pool="short"),
        named("kv", [(first_ms - 1000, 0.7), (first_ms + 1000, 0.8)], pool="long"),
    ]
    forwarding.pass_on(prometheus, encode(series))
    wait_for(lambda: query.instant('kv{pool="long"}', first_ms + 1000), 30, "raw samples")

    for at_ms in (first_ms, second_ms):
        assert evaluate_due(partial(from_epoch_ms, at_ms + 15_000)) == 1
    wait_for(lambda: _pools(second_ms) == {"long": 0.8}, 30, "the second result")
    assert _pools(second_ms - 1) == {"short": 0.5, "long": 0.7}
    assert [state["last_error"] for state in rules.states()] == [None]
    assert not own_store.exists()


def _pools(at_ms: int) -> dict[str, float]:
    return {sample.labels["pool"]: sample.value for sample in query.instant("pool:kv:max", at_ms)}
