"""Writes checked and passed on to, and queries answered by, a real Prometheus and a real VictoriaMetrics."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from controlplane.telemetry import forwarding, query
from controlplane.telemetry.outgoing import FILE_NAME, Outgoing
from controlplane.telemetry.promql.errors import BadQuery, QueryError, TimedOut, Unanswerable, Unavailable
from controlplane.telemetry.sending import Sender
from tests.controlplane.telemetry.filling import named
from tests.controlplane.telemetry.upstreams import KINDS, RealServer, ToldServer, rows, use
from tests.services import free_port, wait_for
from wire.remote_write import Bounds, decode_series
from wire.write_body import STALE, Series, encode

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module", params=KINDS)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """Both in turn."""
    server = RealServer(request.param, tmp_path_factory.mktemp(request.param))
    with server.running():
        yield server


@pytest.fixture
def sender(own_store: Path) -> Iterator[Sender]:
    """The one that this test's writes go through."""
    own = forwarding.sender_of(own_store.with_name(FILE_NAME))
    yield own
    own.stop()


@pytest.fixture
def external(running: RealServer, sender: Sender, monkeypatch: pytest.MonkeyPatch) -> RealServer:
    use(monkeypatch, running.base)
    return running


def test_a_write_is_passed_on_and_read_back(external, node, ask, now_ms, own_store):
    assert node.push(named("passed_on", [(now_ms - 1000, 4.5)], gpu="1")).status_code == 204
    assert rows(external, "passed_on * 2", now_ms) == [({"node": "n-1", "gpu": "1"}, now_ms, 9.0)]
    data = ask("query", query="passed_on", time=now_ms / 1000).json()["data"]
    assert data["result"][0]["metric"] == {"__name__": "passed_on", "node": "n-1", "gpu": "1"}
    (series,) = query.range_("passed_on", now_ms - 1000, now_ms, 1000)
    assert (series.times_ms, series.values) == ([now_ms - 1000, now_ms], [4.5, 4.5])
    assert ask("label/gpu/values", **{"match[]": "passed_on"}).json()["data"] == ["1"]
    assert not own_store.exists()


def test_raw_samples_are_read_back(external, node, ask, now_ms):
    samples = [(now_ms - 2000, 1.5), (now_ms - 1000, 2.5)]
    assert node.push(named("raw", samples)).status_code == 204
    rows(external, "raw", now_ms)
    answer = ask("query", query="raw[5s]", time=now_ms / 1000)
    assert (answer.status_code, answer["content-type"]) == (200, "application/json")
    (series,) = answer.json()["data"]["result"]
    assert [(round(at * 1000), float(value)) for at, value in series["values"]] == samples


def test_a_foreign_series_is_not_passed_on(external, node, now_ms):
    mine = named("refused", [(now_ms, 1.0)])
    assert node.push(mine, named("refused", [(now_ms, 1.0)], node="n-2")).status_code == 400
    assert node.push(named("after", [(now_ms, 1.0)])).status_code == 204
    assert rows(external, "after", now_ms)
    assert query.instant("refused", now_ms) == []


def test_a_series_that_ended_is_not_read_on(external, node, now_ms):
    assert node.push(named("ended", [(now_ms - 2000, 1.0), (now_ms - 1000, STALE)])).status_code == 204
    assert node.push(named("beside", [(now_ms - 1000, 1.0)])).status_code == 204
    rows(external, "beside", now_ms)
    assert query.instant("ended", now_ms) == []
    assert rows(external, "ended", now_ms - 1500)


def test_what_is_no_number_is_none_in_victoria_metrics(external, node, now_ms):
    assert node.push(named("nan", [(now_ms, float("nan"))]), named("one", [(now_ms, 1.0)])).status_code == 204
    rows(external, "one", now_ms)
    found = [sample.value for sample in query.instant("nan", now_ms)]
    assert (found == []) if external.kind == "victoria-metrics" else math.isnan(found[0])


def test_a_body_that_is_sent_again_counts_once(external, node, now_ms):
    for _ in range(2):
        assert node.push(named("again", [(now_ms - 2000, 1.0), (now_ms - 1000, 2.0)])).status_code == 204
    assert node.push(named("behind_again", [(now_ms, 3.0)])).status_code == 204
    rows(external, "behind_again", now_ms)
    assert [sample.value for sample in rows(external, "count_over_time(again[1m])", now_ms)] == [2.0]


def test_a_wrong_query_is_told_as_prometheus_tells_it(external, ask, now_ms):
    refused = ask("query", query="sum(")
    expected = {"prometheus": (400, "bad_data", BadQuery), "victoria-metrics": (422, "execution", Unanswerable)}
    status, kind, error = expected[external.kind]
    assert (refused.status_code, refused.json()["status"], refused.json()["errorType"]) == (status, "error", kind)
    assert refused.json()["error"]
    with pytest.raises(error):
        query.instant("sum(", now_ms)


def test_what_an_address_does_not_take_is_kept(external, sender, node, now_ms, monkeypatch, caplog):
    monkeypatch.setenv("HEADWORKS_REMOTE_WRITE_URL", f"{external.base}/api/v1/wrong")
    assert node.push(named("patient", [(now_ms, 1.0)])).status_code == 204
    wait_for(lambda: "samples wait" in caplog.text, 20, "a word in the log")
    monkeypatch.undo()
    use(monkeypatch, external.base)
    sender.wake(external.settings["HEADWORKS_REMOTE_WRITE_URL"])
    assert rows(external, "patient", now_ms)


# VictoriaMetrics takes two values at one time.
@pytest.mark.parametrize("running", ["prometheus"], indirect=True)
def test_what_prometheus_refuses_is_lost_alone(external, sender, node, now_ms, caplog):
    for value in (1.0, 2.0):
        assert node.push(named("twice", [(now_ms, value)])).status_code == 204
        wait_for(lambda: not sender.outgoing.waits(), 20, "an empty spool")
    assert node.push(named("behind", [(now_ms, 3.0)])).status_code == 204
    assert rows(external, "behind", now_ms)
    assert [sample.value for sample in rows(external, "twice", now_ms)] == [1.0]
    assert "refused them for good" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_was_killed_gets_what_it_missed(kind, tmp_path, sender, node, now_ms, monkeypatch):
    server = RealServer(kind, tmp_path)
    use(monkeypatch, server.base)
    times = [now_ms - 1000 * back for back in (6, 5, 4, 3, 2, 1)]
    with server.running() as process:
        assert node.push(named("kept", [(times[0], 0.0)])).status_code == 204
        rows(server, "kept", now_ms)
        process.kill()
        for number, time_ms in enumerate(times[1:5], 1):
            assert node.push(named("kept", [(time_ms, float(number))])).status_code == 204
        assert sender.outgoing.waits()
    with server.running():
        assert node.push(named("kept", [(times[5], 5.0)])).status_code == 204
        wait_for(lambda: not sender.outgoing.waits(), 30, "an empty spool")
        rows(server, "kept == 5", now_ms)
        # What VictoriaMetrics takes, it keeps in memory for some seconds: that is lost when it is killed.
        (series,) = query.range_("kept", times[1], times[-1], 1000)
        assert series.values == [1.0, 2.0, 3.0, 4.0, 5.0]


# What a counter that is pushed every 15 s holds, so many pushes before the last one; None: nothing was pushed.
Counter = Callable[[int], float | None]
ASKED = ("increase(c[1m])", "increase(c[5m])", "rate(c[5m])")
# By the counter's line in docs/metrics.md: what Prometheus and what VictoriaMetrics answers to each of ASKED, 7 s after
# the last push.
DIFFERENCES: dict[str, tuple[Counter, list[tuple[float | None, float | None]]]] = {
    "grows by 10 each time": (lambda back: 10_000 - 10.0 * back, [(40, 40), (200, 200), (0.667, 0.667)]),
    "grows by 1 each fourth time": (
        lambda back: 1000.0 + (82 - back) // 4,
        [(1.333, 1), (5.263, 5), (0.018, 0.017)],
    ),
    "jumps by 100 within the last minute": (
        lambda back: 1100.0 if back < 2 else 1000.0,
        [(133.333, 100), (105.263, 100), (0.351, 0.333)],
    ),
    "jumps by 100 just where the last minute begins": (
        lambda back: 1100.0 if back < 4 else 1000.0,
        [(0, 100), (105.263, 100), (0.351, 0.333)],
    ),
    "grows by 10 and begins anew at 3 in the last minute": (
        lambda back: 5000 - 10.0 * back if back > 1 else 13.0 - 10 * back,
        [(30.667, 33), (192.632, 193), (0.642, 0.643)],
    ),
    "has been there for three times, at 5000, 5005, 5010": (
        lambda back: 5010 - 5.0 * back if back < 3 else None,
        [(14.833, 10), (14.833, 10), (0.049, 0.333)],
    ),
    "grows by 10 and was not pushed the last two times": (
        lambda back: 5000 - 10.0 * back if back > 1 else None,
        [(20.333, 20), (180.333, 180), (0.601, 0.667)],
    ),
    "the same, the last three times": (
        lambda back: 5000 - 10.0 * back if back > 2 else None,
        [(None, 10), (170.333, 170), (0.568, 0.667)],
    ),
}
DOCUMENTATION = Path(__file__).parents[3] / "docs" / "metrics.md"


def pushes(last_ms: int) -> list[Series]:
    times = [(back, last_ms - 15_000 * back) for back in range(80, -1, -1)]
    counters: list[Series] = []
    for case, (counter, _) in DIFFERENCES.items():
        values = [(time_ms, counter(back)) for back, time_ms in times]
        counters.append(named("c", [(time_ms, value) for time_ms, value in values if value is not None], case=case))
    return counters


def answers(at_ms: int) -> dict[str, list[float | None]]:
    """To each of ASKED, by case."""
    found: dict[str, list[float | None]] = {case: [None] * len(ASKED) for case in DIFFERENCES}
    for place, promql in enumerate(ASKED):
        for row in query.instant(promql, at_ms):
            found[row.labels["case"]][place] = round(row.value, 3)
    return found


def test_increases_differ_as_the_documentation_says(external, node, now_ms, fill, monkeypatch):
    counters = pushes(now_ms - 7000)
    assert node.push(*counters).status_code == 204
    rows(external, "c", now_ms)
    place = KINDS.index(external.kind)
    assert answers(now_ms) == {case: [both[place] for both in told] for case, (_, told) in DIFFERENCES.items()}
    fill(counters)
    monkeypatch.delenv("HEADWORKS_PROMETHEUS_URL")
    assert answers(now_ms) == {case: [both[0] for both in told] for case, (_, told) in DIFFERENCES.items()}


def test_the_documentation_has_these_differences():
    def cell(both: tuple[float | None, float | None]) -> str:
        return " · ".join("none" if value is None else f"{value:g}" for value in both)

    text = DOCUMENTATION.read_text()
    for case, (_, told) in DIFFERENCES.items():
        assert f"| {case} | {' | '.join(map(cell, told))} |" in text


@pytest.fixture
def server(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> Iterator[ToldServer]:
    with ToldServer() as told:
        use(monkeypatch, told.base)
        yield told


def test_a_slow_server_does_not_hold_writers(server, node, now_ms):
    go_on = threading.Event()

    def slowly(series: list[Series]) -> tuple[int, dict[str, str], bytes]:
        go_on.wait(20)
        return 204, {}, b""

    server.answer = slowly
    for number in range(5):
        assert node.push(named(f"m{number}", [(now_ms, 1.0)])).status_code == 204
    assert server.taken == []
    go_on.set()
    wait_for(lambda: len(server.taken) == 5, 20, "all five")
    assert server.names() == [f"m{number}" for number in range(5)]


def test_writers_are_held_back_while_too_much_waits_and_nothing_taken_is_lost(server, node, now_ms, monkeypatch):
    monkeypatch.setenv("HEADWORKS_METRICS_SPOOL_BYTES", str(1 << 20))
    server.always(503)
    # Each some 60 kB, as its numbers differ.
    answers = []
    for number in range(30):
        noise = [(now_ms + k, float(hash((number, k)))) for k in range(4000)]
        answers.append(node.push(named(f"m{number}", noise)))
        if answers[-1].status_code != 204:
            break
    refused = answers[-1]
    assert (refused.status_code, refused["retry-after"], refused.json()["code"]) == (429, "5", "spool_full")
    assert len(answers) > 5
    server.always(204)
    wait_for(lambda: len(server.taken) == len(answers) - 1, 20, "what was taken")
    assert node.push(named("again", [(now_ms, 1.0)])).status_code == 204
    wait_for(lambda: "again" in server.names(), 20, "one more")


@pytest.mark.parametrize(
    ("status", "headers", "expected", "retry_after"),
    [
        (200, {}, 204, None),
        (429, {"Retry-After": "7"}, 503, "7"),
        (500, {}, 503, "5"),
        (503, {"Retry-After": "9"}, 503, "9"),
        (401, {}, 503, "5"),
        (301, {"Location": "http://127.0.0.1:9/"}, 503, "5"),
        # To every body: a wrong address.
        (400, {}, 503, "5"),
    ],
)
def test_without_a_spool_a_writer_learns_the_servers_verdict(
    server, node, now_ms, own_store, monkeypatch, status, headers, expected, retry_after
):
    monkeypatch.setenv("HEADWORKS_METRICS_SPOOL_BYTES", "0")
    server.always(status, headers)
    answer = node.push(named("a", [(now_ms, 1.0)]))
    assert (answer.status_code, answer.get("retry-after")) == (expected, retry_after)
    assert not forwarding.sender_of(own_store.with_name(FILE_NAME)).outgoing.waits()


@pytest.mark.parametrize(("status", "code"), [(400, "upstream_refused"), (413, "upstream_too_large")])
def test_without_a_spool_a_writer_learns_that_a_body_is_refused(server, node, now_ms, monkeypatch, status, code):
    monkeypatch.setenv("HEADWORKS_METRICS_SPOOL_BYTES", "0")
    server.answer = lambda series: (status if series else 204, {}, b"because")
    answer = node.push(named("a", [(now_ms, 1.0)]))
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert "because" in answer.json()["detail"]


def test_what_an_earlier_run_left_is_sent(server, sender, now_ms):
    sender.outgoing.put(encode([named("left", [(now_ms, 1.0)])]), 1 << 20)
    forwarding.resume()
    wait_for(lambda: server.names() == ["left"], 20, "what was left")


def test_with_the_server_away_writes_are_kept_and_queries_say_so(sender, monkeypatch, node, now_ms, ask):
    use(monkeypatch, f"http://127.0.0.1:{free_port()}")
    assert node.push(named("a", [(now_ms, 1.0)])).status_code == 204
    assert sender.outgoing.waits()
    refused = ask("query", query="a")
    assert (refused.status_code, refused.json()["errorType"]) == (503, "unavailable")
    with pytest.raises(Unavailable):
        query.instant("a", now_ms)


def test_a_disk_that_takes_nothing_is_told(sender, server, node, now_ms, own_store):
    own_store.with_name(FILE_NAME).write_bytes(b"no database" * 1000)
    answer = node.push(named("a", [(now_ms, 1.0)]))
    assert (answer.status_code, answer["retry-after"]) == (503, "5")


def test_what_comes_after_the_file_was_removed_survives_the_process(sender, server, node, now_ms, own_store):
    server.always(503)
    file = own_store.with_name(FILE_NAME)
    assert node.push(named("before", [(now_ms, 1.0)])).status_code == 204
    for suffix in ("", "-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
    assert node.push(named("after", [(now_ms, 1.0)])).status_code == 204
    # As another process would find it.
    other = Outgoing(file)
    assert [decode_series(body, Bounds())[0].labels["__name__"] for _, body in other.oldest(1 << 20)] == ["after"]
    other.close()
    server.always(204)
    wait_for(lambda: len(server.taken) == 2, 30, "both")
    forwarding.sender_of(file).stop()


@pytest.mark.parametrize(
    ("status", "body", "error", "answered"),
    [
        (400, b'{"status":"error","errorType":"bad_data","error":"no"}', BadQuery, (400, "bad_data")),
        (422, b'{"status":"error","errorType":"execution","error":"no"}', Unanswerable, (422, "execution")),
        (503, b'{"status":"error","errorType":"timeout","error":"no"}', TimedOut, (503, "timeout")),
        (422, b'{"status":"error","errorType":"422","error":"no"}', Unanswerable, (422, "execution")),
        (429, b'{"status":"error","errorType":"429","error":"no"}', Unavailable, (503, "unavailable")),
        (500, b'{"status":"error","errorType":"internal","error":"no"}', Unavailable, (503, "unavailable")),
        (401, b'{"error":"who are you"}', Unavailable, (503, "unavailable")),
        (400, b"<html>", Unavailable, (503, "unavailable")),
        (404, b"[]", Unavailable, (503, "unavailable")),
        (500, b"[" * 200_000, Unavailable, (503, "unavailable")),
        (301, b"", Unavailable, (503, "unavailable")),
    ],
)
def test_a_servers_error_is_told_in_prometheus_terms(server, viewer, now_ms, status, body, error, answered):
    server.always(status, JSON, body)
    with pytest.raises(QueryError) as raised:
        query.instant("a", now_ms)
    assert type(raised.value) is error
    answer = viewer.client.post("/prometheus/api/v1/query", {"query": "a"})
    assert (answer.status_code, answer.json()["errorType"]) == answered


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Content-Type": "text/html"}, b"<html>"),
        (JSON, b"[]"),
        (JSON, b"[" * 200_000),
        (JSON, b'{"status": "success", "data": {"resultType": "vector", "result": [1]}}'),
        (JSON, b'{"status": "success", "data": {"resultType": "matrix", "result": []}}'),
        (JSON, b'{"status": "success", "data": {"resultType": "scalar", "result": [Infinity, "1"]}}'),
    ],
)
def test_an_answer_of_another_form_is_named(server, now_ms, headers, body):
    server.always(200, headers, body)
    with pytest.raises(Unavailable):
        query.instant("a", now_ms)


def test_a_page_in_place_of_json_is_not_passed_on(server, viewer):
    server.always(200, {"Content-Type": "text/html"}, b"<script>")
    answer = viewer.client.post("/prometheus/api/v1/query", {"query": "a"})
    assert (answer.status_code, answer["content-type"]) == (503, "application/json")


@pytest.mark.parametrize("name", ["é", "a?b", "..?x", "a b", "a\nb", "a#b"])
def test_a_label_stays_one_part_of_the_servers_address(external, ask, name):
    answer = ask(f"label/{quote(name)}/values")
    # Prometheus refuses some as names, and never takes one for another address.
    assert answer.status_code in (200, 400, 422)
    if answer.status_code == 200:
        assert answer.json()["data"] in ([], None)
