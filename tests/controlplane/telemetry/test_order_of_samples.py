"""Late samples and those that come twice are taken, refused and read back as by a real Prometheus with that window.

Where a time has a value already, Prometheus refuses another one if it is of the newest sample; elsewhere it takes the
write and keeps one of both. Here it is refused wherever it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from controlplane.telemetry import query
from tests.controlplane.telemetry.filling import named
from tests.controlplane.telemetry.upstreams import RealServer, use
from wire.write_body import CONTENT_ENCODING, CONTENT_TYPE, VERSION, VERSION_HEADER, Series, encode

HEADERS = {"Content-Type": CONTENT_TYPE, "Content-Encoding": CONTENT_ENCODING, VERSION_HEADER: VERSION}
TAKEN, REFUSED = 204, 400
# Seconds after the moment of the test → value.
Samples = list[tuple[int, float]]
STORED: Samples = [(-60, 1.0), (0, 3.0)]
Push = Callable[..., int]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """With the window that we have unless told otherwise."""
    folder: Path = tmp_path_factory.mktemp("prometheus")
    server = RealServer("prometheus", folder)
    (folder / "prometheus.yml").write_text("storage: {tsdb: {out_of_order_time_window: 5m}}\n")
    with server.running():
        yield server


@pytest.fixture(scope="module")
def moments() -> Iterator[int]:
    """Each later than the one before (Unix time in ms): Prometheus' window is of the newest sample of all series."""
    return count((int(time.time()) - 3000) * 1000, 100_000)


@pytest.fixture
def writers(prometheus: RealServer, node: Any) -> tuple[Push, Push]:
    """How Prometheus answers a body, and how we do."""

    def theirs(*series: Series) -> int:
        request = Request(prometheus.settings["HEADWORKS_REMOTE_WRITE_URL"], encode(list(series)), HEADERS)
        try:
            with urlopen(request) as answer:
                return int(answer.status)
        except HTTPError as error:
            # Debian's 2.42 answers 500 to what later versions refuse.
            return REFUSED if b"too old sample" in error.read() else error.code

    return theirs, lambda *series: int(node.push(*series).status_code)


def held(at_ms: int) -> list[float]:
    """Number, sum and last of each series' samples."""
    asked = ("count_over_time", "sum_over_time", "last_over_time")
    return [row.value for name in asked for row in query.instant(f'{name}({{at="{at_ms}"}}[20m])', at_ms + 60_000)]


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        pytest.param([(0, 3.0)], TAKEN, id="the newest again"),
        pytest.param([(-60, 1.0)], TAKEN, id="an older one again"),
        pytest.param([(0, 5.0)], REFUSED, id="another value at the newest time"),
        pytest.param([(-30, 2.0)], TAKEN, id="late"),
        pytest.param([(-30, 2.0), (-30, 2.0)], TAKEN, id="late and twice"),
        pytest.param([(-300, 2.0)], TAKEN, id="as late as may be"),
        pytest.param([(-301, 2.0)], REFUSED, id="too late"),
        pytest.param([(15, 4.0), (30, 5.0)], TAKEN, id="in order"),
        pytest.param([(30, 5.0), (15, 4.0)], TAKEN, id="in another order"),
        pytest.param([(15, 4.0), (15, 4.0)], TAKEN, id="twice in a body"),
    ],
)
def test_samples_are_taken_as_by_prometheus(writers, moments, prometheus, monkeypatch, samples, expected):
    """In a body with a series that is well: of one that is refused, that is not kept either."""
    at_ms = next(moments)

    def series(which: str, rows: Samples) -> Series:
        return named("a", [(at_ms + 1000 * seconds, value) for seconds, value in rows], at=str(at_ms), which=which)

    for push in writers:
        assert push(series("first", STORED)) == TAKEN
        assert push(series("second", [(0, 7.0)]), series("first", samples)) == expected
    ours = held(at_ms)
    use(monkeypatch, prometheus.base)
    assert held(at_ms) == ours
    assert len(ours) == (6 if expected == TAKEN else 3)
