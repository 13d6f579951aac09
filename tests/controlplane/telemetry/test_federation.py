"""The page that another Prometheus scrapes, compared with a real Prometheus' own."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from controlplane.core.models import Role
from tests.controlplane.telemetry.filling import named
from tests.controlplane.telemetry.upstreams import RealServer
from tests.services import free_port
from wire.write_body import CONTENT_ENCODING, CONTENT_TYPE, STALE, VERSION, VERSION_HEADER, Series, encode

URL = "/prometheus/federate"
NUMBERS = (0.0, -0.0, 1.0, 0.1, 999999.0, 1e6, 1234567.0, 0.0001, 0.00001234, -1.5e-9, 1e21, 1e22, 5e-324)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = RealServer("prometheus", tmp_path_factory.mktemp("prometheus"))
    with server.running():
        yield server.base


def samples(now_ms: int) -> list[Series]:
    return [
        named("temperature", [(now_ms - 30_000, 60.0), (now_ms - 15_000, 61.5)], gpu="1", instance="n-1:9400"),
        named("temperature", [(now_ms - 15_001, 62.0)], gpu="0"),
        named("temperature", [(now_ms - 15_000, 63.0)], gpu="0", zone="a"),
        named("ended", [(now_ms - 30_000, 1.0), (now_ms - 15_000, STALE)]),
        named("old", [(now_ms - 400_000, 1.0)]),
        named("escaped", [(now_ms - 15_000, 1.0)], path='a\\b "c"\nd ü'),
        *(named("special", [(now_ms - 15_000, value)], n=str(value)) for value in (math.nan, math.inf, -math.inf)),
        *(named("number", [(now_ms - 15_000, value)], n=str(place)) for place, value in enumerate(NUMBERS)),
    ]


@pytest.mark.parametrize(
    "selectors",
    [
        ["temperature"],
        ['{__name__=~".+"}'],
        ["temperature", 'temperature{gpu="0"}', "ended", "old"],
        ['{gpu="0",zone=""}'],
        ["nothing"],
        [],
    ],
)
def test_the_page_is_prometheus_own(prometheus, viewer, fill, now_ms, selectors):
    fill(samples(now_ms))
    # The same Prometheus serves every test: theirs are told apart by a label more.
    run = secrets.token_hex(4)
    body = encode([Series({**each.labels, "run": run}, each.samples) for each in samples(now_ms)])
    headers = {"Content-Type": CONTENT_TYPE, "Content-Encoding": CONTENT_ENCODING, VERSION_HEADER: VERSION}
    with urlopen(Request(f"{prometheus}/api/v1/write", body, headers)) as answer:
        assert answer.status == 204
    own = [_with(text, f'run="{run}"') for text in selectors]
    with urlopen(f"{prometheus}/federate?{urlencode([('match[]', text) for text in own])}") as answer:
        theirs, kind = answer.read().decode(), answer.headers["content-type"]
    ours = viewer.client.get(URL, {"match[]": selectors})
    assert (ours["content-type"], ours.content.decode()) == (kind, theirs.replace(f',run="{run}"', ""))


def _with(selector: str, matcher: str) -> str:
    return selector.replace("}", f",{matcher}}}") if "{" in selector else f"{selector}{{{matcher}}}"


def test_pythons_parser_reads_the_page(viewer, fill, now_ms):
    fill(samples(now_ms))
    page = viewer.client.get(URL, {"match[]": "escaped"}).content.decode()
    ((family,),) = [list(text_string_to_metric_families(page))]
    (sample,) = family.samples
    assert (family.type, sample.labels["path"], sample.value) == ("unknown", 'a\\b "c"\nd ü', 1.0)
    assert sample.timestamp == (now_ms - 15_000) / 1000


def test_every_role_reads_it_and_others_do_not(rest_of, node):
    for role in Role:
        assert rest_of(role).client.get(URL, {"match[]": "up"}).status_code == 200
    stranger = rest_of(None).client.get(URL, {"match[]": "up"})
    assert (stranger.status_code, stranger["www-authenticate"]) == (401, "Bearer")
    assert Client(headers={"authorization": f"Bearer {node.token}"}).get(URL).status_code == 401


def test_what_is_no_selector_is_refused(viewer):
    answer = viewer.client.get(URL, {"match[]": "sum(a)"})
    assert answer.status_code == 400
    assert "match[]" in answer.content.decode()
    assert viewer.client.post(URL).status_code == 405


def test_too_many_samples_are_refused(viewer, fill, now_ms, monkeypatch):
    monkeypatch.setenv("HEADWORKS_METRICS_QUERY_SAMPLES_MAX", "1000")
    fill([named("a", [(now_ms - at, 1.0) for at in range(1001)])])
    answer = viewer.client.get(URL, {"match[]": "a"})
    assert answer.status_code == 422
    assert "1000 samples" in answer.content.decode()


def test_the_page_of_an_external_server_is_passed_on(prometheus, viewer, monkeypatch, own_store):
    monkeypatch.setenv("HEADWORKS_PROMETHEUS_URL", f"{prometheus}/")
    assert viewer.client.get(URL, {"match[]": "nothing"}).status_code == 200
    assert viewer.client.get(URL, {"match[]": "sum("}).status_code == 400
    assert not own_store.exists()
    monkeypatch.setenv("HEADWORKS_PROMETHEUS_URL", f"http://127.0.0.1:{free_port()}")
    answer = viewer.client.get(URL, {"match[]": "nothing"})
    assert (answer.status_code, answer["retry-after"]) == (503, "5")
