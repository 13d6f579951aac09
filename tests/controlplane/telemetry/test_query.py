"""Queries of pages, which wait for an external server no longer than they say."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from controlplane.telemetry import query
from controlplane.telemetry.promql.errors import Unavailable
from tests.controlplane.telemetry.upstreams import use

LONG_SECONDS, SHORT_SECONDS = 60, 0.2


@pytest.fixture
def silent_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """It takes connections and never answers; the settings would wait for long."""
    monkeypatch.setenv("HEADWORKS_METRICS_UPSTREAM_SECONDS", str(LONG_SECONDS))
    with socket.create_server(("127.0.0.1", 0)) as server:
        use(monkeypatch, f"http://127.0.0.1:{server.getsockname()[1]}")
        yield


@pytest.mark.usefixtures("silent_server")
def test_a_server_that_hangs_is_waited_for_as_long_as_the_caller_allows() -> None:
    begun = time.monotonic()
    with pytest.raises(Unavailable, match="not answer"):
        query.instant("up", 0, seconds_max=SHORT_SECONDS)
    with pytest.raises(Unavailable, match="not answer"):
        query.range_("up", 0, 1000, 1000, seconds_max=SHORT_SECONDS)
    assert time.monotonic() - begun < LONG_SECONDS / 2
