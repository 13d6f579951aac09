"""What hostile writers and readers send: refused by name, in bounded memory and time, and the store goes on working."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cramjam import snappy

from controlplane.telemetry import results
from controlplane.telemetry.promql.errors import TooMuch
from controlplane.telemetry.promql.values import Windows
from tests.controlplane.telemetry.conftest import BASE, Pusher
from tests.controlplane.telemetry.filling import named
from tests.controlplane.telemetry.test_receiver import stored
from wire.remote_write_pb2 import Label, WriteRequest
from wire.write_body import encode, key_of

YEAR_S = 365 * 86_400
# What a test may cost, in time of the processor. A body of samples without a time and a value takes most: some 350 MiB
# while it is decoded.
SECONDS, MEBIBYTES = 10.0, 500


def mebibytes(field: str) -> float:
    """VmRSS: what this process holds now; VmHWM: the most that it held since the mark was set back."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


@pytest.fixture
def bounded() -> Iterator[None]:
    """The test takes no more than it may."""
    begun, before = time.process_time(), mebibytes("VmRSS")
    # Sets the mark back. Source: proc(5).
    Path("/proc/self/clear_refs").write_text("5")
    yield
    assert time.process_time() - begun < SECONDS
    assert mebibytes("VmHWM") - before < MEBIBYTES


@pytest.fixture
def refused(node: Pusher, own_store: Any, now_ms: int, bounded: None) -> Callable[..., None]:
    """A body is refused with a status and a reason, in few words; nothing of it is kept, and the writer goes on."""

    def check(body: bytes, status: int, code: str) -> None:
        answer = node.send(body)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert len(answer.content) < 4000
        assert stored(own_store) == 0
        assert node.push(named("next", [(now_ms, 1.0)])).status_code == 204

    return check


def written(*series: tuple[tuple[bytes, ...], int]) -> bytes:
    """A body of series with one sample each, whatever their labels are."""
    request = WriteRequest()
    for key, time_ms in series:
        request.timeseries.add(labels=key).samples.add(timestamp=time_ms, value=1.0)
    return bytes(snappy.compress_raw(request.SerializeToString()))


@pytest.mark.parametrize("kept", [1, 10, 0.5, -1])
def test_truncated_snappy(refused, now_ms, kept):
    whole = encode([named(f"metric_{number}", [(now_ms, 1.0)]) for number in range(200)])
    end = round(len(whole) * kept) if isinstance(kept, float) else kept
    refused(whole[:end], 400, "not_snappy")


def test_a_decompression_bomb(refused):
    gigabyte = bytes(snappy.compress_raw(bytes(1 << 30)))
    # 48 MB of itself would be refused unread: its first part says the same size.
    refused(gigabyte[: 1 << 20], 413, "body_too_large")


def test_a_bomb_that_lies_about_its_size(refused):
    bomb = bytes(snappy.compress_raw(bytes(15 << 20)))
    # Of the size that it says it is, ten bytes, only the first are there.
    refused(b"\x0a" + bomb[4:], 400, "not_snappy")


def test_a_body_of_samples_that_take_two_bytes_each(refused, now_ms):
    row = b"\x0a" + _length(2 * 8_000_000) + b"\x12\x00" * 8_000_000
    refused(bytes(snappy.compress_raw(row)), 413, "too_many_samples")


def _length(size: int) -> bytes:
    """A protobuf length."""
    encoded = bytearray()
    while size > 0x7F:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*encoded, size])


def test_a_label_value_of_ten_megabytes(refused, now_ms):
    refused(written((key_of({"__name__": "a", "node": "n-1", "x": "v" * 10_000_000}), now_ms)), 400, "value_too_long")


def test_a_label_name_of_ten_megabytes(refused, now_ms):
    refused(written((key_of({"__name__": "a", "node": "n-1", "x" * 10_000_000: "v"}), now_ms)), 400, "name_too_long")


def test_a_metric_name_of_ten_megabytes(refused, now_ms):
    refused(written((key_of({"__name__": "a" * 10_000_000, "node": "n-1"}), now_ms)), 400, "value_too_long")


def test_a_hundred_thousand_labels_of_one_series(refused, now_ms):
    labels = tuple(Label(name=f"l{number:06}", value="v").SerializeToString() for number in range(100_000))
    refused(written((labels, now_ms)), 400, "too_many_labels")


def test_a_million_series_in_one_body(refused):
    refused(bytes(snappy.compress_raw(b"\x0a\x02\x12\x00" * 1_000_000)), 413, "too_many_series")


def test_a_million_series_of_one_writer(node, own_store, now_ms, bounded, monkeypatch):
    """Body after body: each is refused before it makes a series, so that no other writer waits."""
    monkeypatch.setenv("HEADWORKS_METRICS_SERIES_PER_TARGET_MAX", "1000")
    assert node.push(*(named("a", [(now_ms, 1.0)], n=str(number)) for number in range(1000))).status_code == 204
    body = encode([named("b", [(now_ms, 1.0)], n=f"{number:05}") for number in range(20_000)])
    for _ in range(5):
        answer = node.send(body)
        assert (answer.status_code, answer.json()["code"]) == (400, "too_many_series")
    assert "it may have 1000" in answer.json()["detail"]
    assert node.push(named("a", [(now_ms + 1, 1.0)], n="1")).status_code == 204
    assert stored(own_store) == 1001


@pytest.mark.parametrize(
    ("at_ms", "code"),
    [
        (0, "too_old"),
        (1, "too_old"),
        (-(2**63), "too_old"),
        (4_102_444_800_000, "too_far_in_future"),
        (2**63 - 1, "too_far_in_future"),
    ],
)
def test_timestamps_of_1970_and_2100(refused, at_ms, code):
    refused(written((key_of({"__name__": "a", "node": "n-1"}), at_ms)), 400, code)


@pytest.fixture
def many_values(fill: Callable[..., None], now_ms: int) -> None:
    """Long values that are alike almost to their ends."""
    fill([named("a", [(now_ms, 1.0)], path="é" * 1000 + str(number)) for number in range(2000)])


READS = pytest.mark.parametrize(("path", "name"), [("query", "query"), ("series", "match[]"), ("labels", "match[]")])


@READS
@pytest.mark.parametrize("pattern", ["(a+)+$b", "(é+é+)+y", "(.*é){50}x", "a" * 5000])
def test_regular_expressions_that_blow_up_elsewhere_are_answered(many_values, ask, bounded, path, name, pattern):
    answer = ask(path, **{name: f'{{path=~"{pattern}"}}'})
    assert answer.status_code == 200
    data = answer.json()["data"]
    assert (data["result"] if path == "query" else data) == []


@READS
@pytest.mark.parametrize("pattern", ["(a{1000}){1000}", r"(\\pL?\\w?){300}x", "("])
def test_regular_expressions_that_would_be_too_large_are_refused(many_values, ask, bounded, path, name, pattern):
    answer = ask(path, **{name: f'{{path=~"{pattern}"}}'})
    assert (answer.status_code, answer.json()["errorType"]) == (400, "bad_data")
    assert re.search("illegal regex|regular expression", answer.json()["error"])


@READS
def test_a_regular_expression_that_takes_long_is_given_up(many_values, ask, bounded, path, name, monkeypatch):
    monkeypatch.setenv("HEADWORKS_METRICS_QUERY_SECONDS", "1")
    # Some 30 ms for each of the values, in an engine that is linear in the text.
    answer = ask(path, **{name: '{path=~"(.?){1000}x"}'})
    assert (answer.status_code, answer.json()["errorType"]) == (503, "timeout")


@pytest.fixture
def a_year(fill: Callable[..., None], now_ms: int) -> None:
    times_ms = range(now_ms - YEAR_S * 1000, now_ms, YEAR_S)
    fill(named(f"metric_{number}", [(at, 1.0) for at in times_ms]) for number in range(20))


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("query", 'count_over_time({__name__=~".+"}[1y])'),
        ("query", '{__name__=~".+"}[1y]'),
        ("query_range", '{__name__=~".+"}'),
    ],
)
def test_a_query_over_all_series_for_a_year(a_year, ask, now_ms, bounded, path, query, monkeypatch):
    monkeypatch.setenv("HEADWORKS_METRICS_QUERY_SAMPLES_MAX", "15000")
    end = now_ms / 1000
    span = {"start": end - YEAR_S, "end": end, "step": YEAR_S / 10_000} if path == "query_range" else {"time": end}
    answer = ask(path, query=query, **span)
    assert (answer.status_code, answer.json()["errorType"]) == (422, "execution")
    assert "15000 samples" in answer.json()["error"]


@pytest.mark.parametrize("path", ["series", "labels", "label/node/values"])
def test_a_look_at_more_series_than_a_query_may_touch(fill, ask, now_ms, bounded, path, monkeypatch):
    fill([named("a", [(now_ms, 1.0)], n=str(number)) for number in range(1001)])
    monkeypatch.setenv("HEADWORKS_METRICS_QUERY_SAMPLES_MAX", "1000")
    answer = ask(path, **{"match[]": '{__name__=~".+"}'})
    assert (answer.status_code, answer.json()["errorType"]) == (422, "execution")


@pytest.mark.parametrize("query", ["(" * 5000, "a" * 20_000, "-" * 5000 + "1", "sum(" * 150 + "a" + ")" * 150])
def test_a_query_that_would_exhaust_the_stack(ask, bounded, query):
    assert ask("query", query=query).status_code in (200, 400)
    assert ask("query", query="1").status_code == 200


def longer(function: str, vector: str) -> str:
    """A query that makes the label `path` hundreds of times as long."""
    many = '"' + "$1" * 3000 + '", "path", "(.*)"' if function == "label_replace" else '""' + ', "path"' * 700
    return f'{function}({vector}, "path", {many})'


@pytest.fixture(params=["label_replace", "label_join"])
def function(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_label_that_a_query_makes_longer_and_longer_is_refused(fill, ask, now_ms, bounded, function):
    """Each step makes it hundreds of times longer: two of them make megabytes of ten characters, three gigabytes."""
    fill([named("a", [(now_ms, 1.0)], path="v" * 10)])
    once = longer(function, "a")
    assert ask("query", query=once).status_code == 200
    answer = ask("query", query=longer(function, once))
    assert (answer.status_code, answer.json()["errorType"]) == (422, "execution")
    assert f"{function}() would make a label of more than 65536 characters" in answer.json()["error"]


def test_labels_that_a_query_makes_count_as_samples(fill, ask, now_ms, bounded, function, monkeypatch):
    fill([named("a", [(now_ms, 1.0)], path=f"{number:09}") for number in range(20)])
    monkeypatch.setenv("HEADWORKS_METRICS_QUERY_SAMPLES_MAX", "1000")
    answer = ask("query", query=longer(function, "a"))
    assert (answer.status_code, answer.json()["errorType"]) == (422, "execution")
    assert "1000 samples" in answer.json()["error"]


@pytest.mark.parametrize("query", ["a[{0}]", "a offset {0}", "a offset -{0}", "max_over_time(a[1h:{0}])"])
@pytest.mark.parametrize("duration", ["300y", "5000000y", "584942417y", f"{10**20}y", f"{2**64 - 1}ms"])
def test_a_duration_that_no_type_holds_is_refused(ask, query, duration):
    answer = ask("query", query=query.format(duration))
    assert (answer.status_code, answer.json()["errorType"]) == (400, "bad_data")


def test_a_subquery_of_millions_of_steps_takes_no_more_than_samples_do(ask, bounded):
    answer = ask("query", query="quantile_over_time(0.5, vector(1)[200d:1s])")
    assert (answer.status_code, answer.json()["errorType"]) == (422, "execution")


@pytest.mark.parametrize("path", ["query", "query_range"])
@pytest.mark.parametrize("query", ["a", "a[1m]"])
def test_an_answer_that_would_be_too_large_is_refused(fill, ask, now_ms, path, query, monkeypatch):
    fill([named("a", [(now_ms, 1.0)], path="v" * 1000 + str(number)) for number in range(10)])
    at = now_ms / 1000
    moments = {"time": at} if path == "query" else {"start": at, "end": at, "step": 1}
    if (path, query) == ("query_range", "a[1m]"):
        query = "last_over_time(a[1m])"
    monkeypatch.setattr(results, "_ANSWER_MAX_BYTES", 20_000)
    assert ask(path, query=query, **moments).status_code == 200
    monkeypatch.setattr(results, "_ANSWER_MAX_BYTES", 5000)
    answer = ask(path, query=query, **moments)
    assert (answer.status_code, answer.json()["errorType"]) == (422, "execution")
    assert "more than 5000 bytes" in answer.json()["error"]


def test_raw_samples_are_laid_out_no_further_than_an_answer_reaches(bounded):
    times_ms, rows = np.arange(100_000), 200
    bounds = np.zeros((rows, 1), np.int64), np.full((rows, 1), len(times_ms))
    labels = [{"n": str(row)} for row in range(rows)]
    with pytest.raises(TooMuch):
        results.instant_json(Windows(labels, times_ms, times_ms / 3, *bounds, np.array([0]), 1), 0)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"junk", "multipart/form-data"),
        (b"junk", "multipart/form-data; boundary=é"),
        (b"query=1", "application/x-www-form-urlencoded; charset=utf-16"),
    ],
)
def test_a_form_that_cannot_be_read_is_refused_as_prometheus_does(viewer, body, kind):
    answer = viewer.client.post(f"{BASE}/query", body, content_type=kind)
    assert (answer.status_code, answer.json()["errorType"]) == (400, "bad_data")
