"""Prometheus' HTTP API over the embedded store."""

from __future__ import annotations

import math

import pytest
from django.test import Client

from controlplane.core.models import Role, User
from controlplane.telemetry import embedded, query, urls
from controlplane.telemetry.promql import budget
from controlplane.telemetry.promql.errors import BadQuery, TimedOut
from tests.controlplane.telemetry.conftest import BASE
from tests.controlplane.telemetry.filling import named

READS = {
    "query": {"query": "up"},
    "query_range": {"query": "up", "start": "0", "end": "60", "step": "15"},
    "series": {"match[]": "up"},
    "labels": {},
    "label/node/values": {},
    "metadata": {},
    "status/buildinfo": {},
}


def test_the_table_names_every_address():
    patterns = {str(pattern.pattern).replace("<str:name>", "node") for pattern in urls.urlpatterns}
    assert patterns == {"", *(f"api/v1/{path}" for path in READS), "federate", "^(?P<rest>.*)$"}


@pytest.mark.parametrize("path", READS)
def test_people_read_and_strangers_do_not(rest_of, path):
    for role in Role:
        assert rest_of(role).client.get(f"{BASE}/{path}", READS[path]).status_code == 200
    refused = rest_of(None).client.get(f"{BASE}/{path}", READS[path])
    assert (refused.status_code, refused["www-authenticate"]) == (401, "Bearer")
    assert refused.json()["status"] == "error"


@pytest.mark.parametrize("path", READS)
def test_a_target_does_not_read(node, path):
    answer = Client(headers={"authorization": f"Bearer {node.token}"}).get(f"{BASE}/{path}", READS[path])
    assert answer.status_code == 401


def test_a_browser_posts_only_with_its_csrf_token(db):
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create(username="ada"))
    assert client.get(f"{BASE}/query", READS["query"]).status_code == 200
    assert client.post(f"{BASE}/query", READS["query"]).status_code == 403


def test_a_range_query_gives_a_matrix(ask, fill, now_ms):
    fill([named("a", [(now_ms - 30_000 + at * 10_000, float(at)) for at in range(4)], gpu="1")])
    start = now_ms / 1000 - 30
    data = ask("query_range", query="a + 0.5", start=start, end=start + 30, step="15s").json()["data"]
    values = [[start, "0.5"], [start + 15, "1.5"], [start + 30, "3.5"]]
    assert data == {"resultType": "matrix", "result": [{"metric": {"gpu": "1", "node": "n-1"}, "values": values}]}


def test_rows_of_a_matrix_are_sorted_and_those_without_a_value_left_out(ask, fill, now_ms):
    fill(named("a", [(now_ms, value)], gpu=gpu) for gpu, value in (("2", 1.0), ("1", 1.0), ("3", -1.0)))
    at = now_ms / 1000
    result = ask("query_range", query="a > 0", start=at, end=at, step=1).json()["data"]["result"]
    assert [row["metric"]["gpu"] for row in result] == ["1", "2"]


def test_a_form_may_be_posted(viewer, fill, now_ms):
    fill([named("a", [(now_ms, 1.0)])])
    answer = viewer.client.post(f"{BASE}/query", {"query": "a", "time": now_ms / 1000})
    assert len(answer.json()["data"]["result"]) == 1


@pytest.mark.parametrize(
    ("promql", "kind", "result"),
    [
        ("1 + 1", "scalar", "2"),
        ('"text"', "string", "text"),
        ("0 / 0", "scalar", "NaN"),
        ("1 / 0", "scalar", "+Inf"),
        ("-1 / 0", "scalar", "-Inf"),
        ("1e21", "scalar", "1e+21"),
        ("0.1", "scalar", "0.1"),
        ("1e16", "scalar", "10000000000000000"),
        ("123456789e12", "scalar", "123456789000000000000"),
        ("0.00001", "scalar", "0.00001"),
        ("-0.0000015", "scalar", "-0.0000015"),
        ("0.00000099", "scalar", "9.9e-07"),
    ],
)
def test_scalars_are_written_as_prometheus_does(ask, promql, kind, result):
    data = ask("query", query=promql, time="10.5").json()["data"]
    assert data == {"resultType": kind, "result": [10.5, result]}


def test_numbers_of_a_matrix_are_written_as_those_of_a_vector(ask, fill, now_ms):
    values = (1e16, 1e22, 1e-5, 1e-7, 2.5, -0.0, math.inf)
    fill([named("a", [(now_ms - 1000 + place, value) for place, value in enumerate(values)])])
    (row,) = ask("query", query="a[1m]", time=now_ms / 1000).json()["data"]["result"]
    texts = [ask("query", query=f"vector({value!r})").json()["data"]["result"][0]["value"][1] for value in values]
    assert [text for _, text in row["values"]] == texts == [
        "10000000000000000", "1e+22", "0.00001", "1e-07", "2.5", "-0", "+Inf"
    ]  # fmt: skip


def test_the_end_of_a_range_is_what_was_asked_and_not_its_last_step(ask, fill, now_ms):
    fill([named("a", [(now_ms - 60_000, 50.0), (now_ms - 5_000, 61.0)])])
    asked = {"start": (now_ms - 60_000) / 1000, "end": now_ms / 1000, "step": "40"}
    answer = ask("query_range", query="a @ end()", **asked)
    (row,) = answer.json()["data"]["result"]
    assert [value for _, value in row["values"]] == ["61", "61"]


def test_a_range_selector_gives_its_samples(ask, fill, now_ms):
    fill([named("a", [(now_ms - 1500, 1.0), (now_ms, 2.0)])])
    (row,) = ask("query", query="a[1m]", time=now_ms / 1000).json()["data"]["result"]
    assert row["values"] == [[now_ms / 1000 - 1.5, "1"], [now_ms / 1000, "2"]]


@pytest.mark.parametrize("at", ["2026-01-02T03:04:05Z", "2026-01-02T06:04:05+03:00", "1767323045", "1767323045.000"])
def test_times_are_seconds_or_rfc_3339(ask, at):
    assert ask("query", query="time()", time=at).json()["data"]["result"] == [1767323045.0, "1767323045"]


@pytest.mark.parametrize(
    ("path", "parameters", "status", "kind"),
    [
        ("query", {}, 400, "bad_data"),
        ("query", {"query": "sum("}, 400, "bad_data"),
        ("query", {"query": "mad_over_time(a[5m])"}, 422, "execution"),
        ("query", {"query": "a", "time": "noon"}, 400, "bad_data"),
        ("query", {"query": "a", "time": "NaN"}, 400, "bad_data"),
        ("query", {"query": "a", "time": "1e300"}, 400, "bad_data"),
        ("query", {"query": "a", "time": "2026-01-02T03:04:05"}, 400, "bad_data"),
        ("query", {"query": "a", "lookback_delta": "0"}, 400, "bad_data"),
        ("query", {"query": "a", "timeout": "soon"}, 400, "bad_data"),
        ("query_range", {"query": "a", "start": "0", "end": "1"}, 400, "bad_data"),
        ("query_range", {"query": "a", "start": "1", "end": "0", "step": "1"}, 400, "bad_data"),
        ("query_range", {"query": "a", "start": "0", "end": "1", "step": "0"}, 400, "bad_data"),
        ("query_range", {"query": "a", "start": "0", "end": "11001", "step": "1"}, 400, "bad_data"),
        ("query_range", {"query": "a[5m]", "start": "0", "end": "1", "step": "1"}, 400, "bad_data"),
        ("query_range", {"query": "a", "start": "0", "end": "253402300799", "step": "1e-3"}, 400, "bad_data"),
        ("series", {}, 400, "bad_data"),
        ("series", {"match[]": "a + b"}, 400, "bad_data"),
        ("series", {"match[]": "a", "start": "2", "end": "1"}, 400, "bad_data"),
        ("labels", {"limit": "-1"}, 400, "bad_data"),
        ("labels", {"limit": "many"}, 400, "bad_data"),
        ("query", {"query": "a", "limit": "-1"}, 400, "bad_data"),
        ("query_range", {"query": "a", "start": "0", "end": "1", "step": "1", "limit": "1.5"}, 400, "bad_data"),
        ("status/config", {}, 404, "not_found"),
    ],
)
def test_errors_have_prometheus_form(ask, path, parameters, status, kind):
    answer = ask(path, **parameters)
    assert (answer.status_code, answer.json()["status"], answer.json()["errorType"]) == (status, "error", kind)
    assert answer.json()["error"]


@pytest.mark.parametrize("name", ["time", "timeout", "limit"])
def test_what_is_no_parameter_is_told_in_short(ask, name):
    answer = ask("query", query="1", **{name: "x" * 100_000})
    assert answer.status_code == 400
    assert name in answer.json()["error"]
    assert len(answer.content) < 1000


def test_eleven_thousand_steps_are_the_limit(ask):
    answer = ask("query_range", query="1", start=0, end=11_000, step=1)
    assert len(answer.json()["data"]["result"][0]["values"]) == 11_001


def test_another_method_is_refused(viewer):
    assert viewer.client.put(f"{BASE}/query").status_code == 405
    assert viewer.client.post(f"{BASE}/label/node/values").status_code == 405


def test_a_query_over_too_much_is_refused(ask, fill, now_ms, monkeypatch):
    monkeypatch.setenv("HEADWORKS_METRICS_QUERY_SAMPLES_MAX", "1000")
    fill([named("a", [(now_ms - at, 1.0) for at in range(1001)])])
    answer = ask("query", query="sum_over_time(a[1m])", time=now_ms / 1000)
    assert (answer.status_code, answer.json()["errorType"]) == (422, "execution")


def test_too_many_queries_at_once_wait_and_are_then_refused(ask, monkeypatch):
    monkeypatch.setenv("HEADWORKS_METRICS_QUERIES_AT_ONCE", "1")
    monkeypatch.setenv("HEADWORKS_METRICS_QUERY_SECONDS", "1")
    with embedded.turn():
        answer = ask("query", query="a")
    assert (answer.status_code, answer.json()["errorType"], answer["retry-after"]) == (503, "timeout", "5")
    assert ask("query", query="a").status_code == 200


def test_callers_who_ask_much_do_not_delay_pages_and_rules(fill, now_ms, monkeypatch):
    fill([named("a", [(now_ms, 1.0)])])
    monkeypatch.setenv("HEADWORKS_METRICS_QUERIES_AT_ONCE", "1")
    monkeypatch.setenv("HEADWORKS_METRICS_QUERY_SECONDS", "1")
    with embedded.turn():
        assert len(query.instant("a", now_ms)) == 1
        assert len(query.range_("a", now_ms, now_ms, 1000)) == 1


def test_large_queries_are_evaluated_one_at_a_time(fill, ask, now_ms, monkeypatch):
    fill([named(name, [(now_ms - at, 1.0) for at in range(size)]) for name, size in (("large", 101), ("small", 1))])
    monkeypatch.setattr(budget, "LARGE_SAMPLES", 100)
    monkeypatch.setenv("HEADWORKS_METRICS_QUERY_SECONDS", "1")
    large = "count_over_time(large[1m])"
    with embedded.turn() as turn:
        turn.budget.touch(101)
        assert ask("query", query="small").status_code == 200
        answer = ask("query", query=large)
        assert (answer.status_code, answer.json()["errorType"]) == (503, "timeout")
        assert "another large query runs" in answer.json()["error"]
        with pytest.raises(TimedOut):
            query.instant(large, now_ms)
    assert ask("query", query=large).status_code == 200
    assert query.instant(large, now_ms)[0].value == 101


def test_a_store_that_cannot_be_read_is_said_to_be(ask, own_store):
    own_store.write_bytes(b"not a database" * 1000)
    answer = ask("query", query="a")
    assert (answer.status_code, answer.json()["errorType"]) == (503, "unavailable")


def test_another_look_back_may_be_asked_for(ask, fill, now_ms):
    fill([named("a", [(now_ms - 30_000, 1.0)])])
    for given, rows in (("10s", 0), ("31", 1)):
        answer = ask("query", query="a", time=now_ms / 1000, lookback_delta=given)
        assert len(answer.json()["data"]["result"]) == rows


@pytest.fixture
def two_series(fill, now_ms):
    fill([named("a", [(now_ms - 600_000, 1.0)], pool="short"), named("b", [(now_ms, 1.0)], gpu="1")])


def test_series_are_found_by_any_selector(ask, two_series):
    found = ask("series", **{"match[]": ["a", '{gpu="1"}', "nothing"]}).json()["data"]
    assert [row["__name__"] for row in found] == ["a", "b"]


def test_series_are_found_by_when_they_have_samples(ask, two_series, now_ms):
    for start, end, names in ((-601, -599, ["a"]), (-500, -1, []), (-1, 1, ["b"]), (-700, 1, ["a", "b"])):
        asked = {"match[]": '{__name__=~".+"}', "start": now_ms / 1000 + start, "end": now_ms / 1000 + end}
        assert [row["__name__"] for row in ask("series", **asked).json()["data"]] == names


def test_labels_and_their_values(ask, two_series):
    assert ask("labels").json()["data"] == ["__name__", "gpu", "node", "pool"]
    assert ask("labels", **{"match[]": "a"}).json()["data"] == ["__name__", "node", "pool"]
    assert ask("label/__name__/values").json()["data"] == ["a", "b"]
    assert ask("label/node/values", **{"match[]": '{gpu="1"}'}).json()["data"] == ["n-1"]
    assert ask("label/nothing/values").json()["data"] == []
    assert ask("labels", limit=2).json()["data"] == ["__name__", "gpu"]


TRUNCATED = ["results truncated due to limit"]


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        ("query", {"query": "a"}),
        ("query", {"query": "a[5m]"}),
        ("query_range", {"query": "a", "step": "15"}),
        ("series", {"match[]": "a"}),
        ("labels", {}),
        ("labels", {"match[]": "a"}),
        ("label/gpu/values", {}),
        ("label/gpu/values", {"match[]": "a"}),
    ],
)
def test_a_limit_cuts_what_is_answered_and_says_so(ask, fill, now_ms, path, parameters):
    fill(named("a", [(now_ms, 1.0)], gpu=gpu) for gpu in ("2", "0", "1"))
    at = now_ms / 1000
    asked = {"time": at, "start": at, "end": at, **parameters}

    def rows(answer):
        return answer["data"]["result"] if path.startswith("query") else answer["data"]

    everything = ask(path, **asked).json()
    assert (len(rows(everything)), everything.get("warnings")) == (3, None)
    for limit in (0, 3):
        assert ask(path, **asked, limit=limit).json() == everything
    first = ask(path, **asked, limit=2).json()
    assert (rows(first), first["warnings"]) == (rows(everything)[:2], TRUNCATED)


def test_a_limit_leaves_a_scalar_alone(ask):
    assert ask("query", query="7", limit=1).json()["data"]["result"][1] == "7"


def test_a_vector_is_cut_in_its_own_order(ask, fill, now_ms):
    fill(named("a", [(now_ms, float(gpu))], gpu=gpu) for gpu in ("2", "0", "1"))
    (row,) = ask("query", query="topk(3, a)", time=now_ms / 1000, limit=1).json()["data"]["result"]
    assert row["value"][1] == "2"


def test_a_form_goes_before_the_address(viewer):
    answer = viewer.client.post(f"{BASE}/query?query=1", {"query": "2"})
    assert answer.json()["data"]["result"][1] == "2"


@pytest.mark.parametrize("stats", ["all", "true", "", "nonsense"])
def test_parameters_that_only_ask_for_more_are_passed_over(ask, stats):
    answer = ask("query", query="7", stats=stats, timeout="60s", dedup="true")
    assert (answer.status_code, answer.json()["data"]["result"][1]) == (200, "7")


def test_a_query_has_no_more_time_than_its_caller_gives_it(ask, fill, now_ms):
    fill([named("a", [(now_ms, 1.0)])])
    answer = ask("query", query="a", time=now_ms / 1000, timeout="0")
    assert (answer.status_code, answer.json()["errorType"]) == (503, "timeout")


def test_build_information_says_which_prometheus_this_answers_as(ask):
    assert ask("status/buildinfo").json()["data"]["version"] == "3.0.0"


def test_python_reads_the_same(fill, now_ms):
    fill([named("a", [(now_ms, 2.5)], gpu="1"), named("a", [(now_ms, math.nan)], gpu="2")])
    first, second = query.instant("a * 2", now_ms)
    assert first == ({"node": "n-1", "gpu": "1"}, now_ms, 5.0)
    assert math.isnan(second.value)
    assert query.instant("7", now_ms) == [({}, now_ms, 7.0)]
    (series,) = query.range_('a{gpu="1"}', now_ms - 1000, now_ms + 1000, 1000)
    assert series == ({"__name__": "a", "node": "n-1", "gpu": "1"}, [now_ms, now_ms + 1000], [2.5, 2.5])
    with pytest.raises(BadQuery):
        query.instant("a[5m]", now_ms)
