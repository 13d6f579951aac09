"""Dash's routes behind Django's log-in, roles, CSRF and errors."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections
from django.test import AsyncClient, Client
from django.test.utils import CaptureQueriesContext
from django.urls import URLPattern

from controlplane.core.models import Role, User
from controlplane.fleet.models import Engine, Model, Node, Pool
from dashboards import dash_app, urls
from dashboards.charts import CHARTS, LAYERS, Layer
from dashboards.readings import now_ms
from dashboards.views import home
from dashboards.whole import whole_of
from tests.dashboards import fleet
from tests.test_pages import inline_code, outside_addresses
from wire.write_body import Series

PAGE = "/dashboards/"
CALLBACK = f"{PAGE}_dash-update-component"
# Dash's page is known by an address that Dash itself wrote, not by one of ours.
SUITE = "_dash-component-suites/dash/dash-renderer/build/dash_renderer.v"


def call(search: str = "") -> dict[str, Any]:
    """What the browser sends for the callback into `whole`."""
    return {
        "output": "whole.data",
        "outputs": {"id": "whole", "property": "data"},
        "inputs": [
            {"id": "address", "property": "search", "value": search},
            {"id": "again", "property": "data", "value": 0},
        ],
        "changedPropIds": ["address.search"],
    }


def ask(client: Client, search: str = "", layer: Layer = LAYERS[0]) -> Any:
    address = f"{PAGE}{layer.path}_dash-update-component"
    answer = client.post(address, call(search), content_type="application/json")
    assert answer.status_code == 200
    return answer.json()["response"]["whole"]["data"]


def test_a_stranger_is_led_from_the_page_to_the_log_in(db: None) -> None:
    answer = Client().get(f"{PAGE}?span=1h")
    assert (answer.status_code, answer["Location"]) == (302, "/log-in/?next=/dashboards/%3Fspan%3D1h")


@pytest.mark.parametrize(
    "pattern",
    [each for each in urls.urlpatterns if each.callback is not home],
    ids=lambda pattern: str(pattern.pattern),
)
def test_no_route_answers_a_stranger(db: None, pattern: URLPattern) -> None:
    path = PAGE + re.sub(r"<\w+:\w+>", "dash", str(pattern.pattern))
    answers = {Client().get(path).status_code, Client().post(path, {}, content_type="application/json").status_code}
    # The method that a route does not know is refused before anything else.
    assert answers <= {401, 405}
    assert 401 in answers


def test_a_callback_needs_the_csrf_token(viewer: Client) -> None:
    viewer.get(PAGE)
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = viewer.cookies
    assert strict.post(CALLBACK, call(), content_type="application/json").status_code == 403
    token = viewer.cookies["headworks_csrf"].value
    answer = strict.post(CALLBACK, call(), content_type="application/json", headers={"X-CSRFToken": token})
    assert answer.status_code == 200


def test_dash_takes_the_token_from_the_cookie_that_the_page_sets(viewer: Client) -> None:
    answer = viewer.get(PAGE)
    found = re.search(r'<script id="_dash-config" type="application/json">(.*?)</script>', answer.content.decode())
    assert found
    configuration = json.loads(found[1])
    assert configuration["csrf_token_name"] in answer.cookies
    assert configuration["csrf_header_name"] == "X-CSRFToken"


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"7", b"{}", b"[" * 100_000, b'{"output": "whole.data"}',
     b'{"output": "else.data", "inputs": []}', b'{"output": ["whole.data"], "inputs": 5}',
        json.dumps(call() | {"inputs": ["a"]}).encode(),
        json.dumps(call() | {"outputs": {"id": "again", "property": "data"}}).encode(),
        json.dumps(call() | {"inputs": call()["inputs"][:1]}).encode(),],
)  # fmt: skip
def test_a_body_that_is_no_call_is_refused_without_a_trace(viewer: Client, body: bytes) -> None:
    answer = viewer.post(CALLBACK, body, content_type="application/json")
    assert answer.status_code == 400
    assert b"Traceback" not in answer.content
    assert b"no call of a callback" in answer.content


@pytest.mark.parametrize("value", [None, 5, ["?span=1h"], {}, "?" + "span=1h&" * 10_000, "?pool=%00%ff"])
def test_odd_values_ask_for_what_nothing_asks_for(viewer: Client, value: object) -> None:
    body = call()
    body["inputs"][0]["value"] = value
    assert viewer.post(CALLBACK, body, content_type="application/json").status_code == 200


def test_an_error_in_a_callback_tells_the_browser_nothing(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> None:
        raise RuntimeError("a secret of the server")

    monkeypatch.setattr(dash_app, "whole_of", fail)
    viewer.raise_request_exception = False
    answer = viewer.post(CALLBACK, call(), content_type="application/json")
    assert answer.status_code == 500
    assert b"secret of the server" not in answer.content
    assert b"Traceback" not in answer.content


def test_the_page_has_no_inline_code_and_nothing_from_outside(viewer: Client) -> None:
    page = viewer.get(PAGE).content.decode()
    assert SUITE in page
    assert inline_code(page) == []
    own = re.sub(r'<script id="_dash-config".*?</script>', "", page, flags=re.DOTALL)
    assert list(outside_addresses(own)) == []


def test_the_policy_allows_no_inline_code_and_no_other_host(viewer: Client) -> None:
    policy = viewer.get(PAGE)["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "script-src 'self';" in policy
    assert "connect-src 'self';" in policy
    assert "sha256-" in policy
    assert "sha256-" not in viewer.get("/tenants/")["Content-Security-Policy"]


def test_a_script_of_dash_comes_compressed_and_is_kept(viewer: Client) -> None:
    page = viewer.get(PAGE).content.decode()
    [address] = re.findall(rf'src="([^"]*{re.escape(SUITE)}[^"]*)"', page)
    plain = viewer.get(address)
    packed = viewer.get(address, headers={"Accept-Encoding": "br, gzip"})
    assert packed["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.content) == plain.content
    assert "immutable" in packed["Cache-Control"]
    assert plain["Content-Type"] == "text/javascript"


@pytest.mark.parametrize("path", ["dash/dash.py", "dash/../setup.py", "os/path.py", "controlplane/settings.py"])
def test_only_registered_files_of_packages_are_served(viewer: Client, path: str) -> None:
    viewer.get(PAGE)
    assert viewer.get(f"{PAGE}_dash-component-suites/{path}").status_code == 404


def test_the_layout_has_a_card_for_every_chart_in_the_readers_language(viewer: Client) -> None:
    viewer.cookies["django_language"] = "tr"
    for layer in LAYERS:
        layout = viewer.get(f"{PAGE}{layer.path}_dash-layout").content.decode()
        ids = set(re.findall(r'"id":"([\w-]+)"', layout))
        assert {chart.name for chart in CHARTS} & ids == {chart.name for chart in layer.charts}
    assert "KV cache kullanımı" in json.dumps(json.loads(layout), ensure_ascii=False)


def test_a_callback_gives_the_figures_and_where_the_stream_goes_on(
    viewer: Client, fill: Callable[[Iterable[Series]], None]
) -> None:
    now = now_ms()
    fill(fleet.gateway_series("edge-1", range(now - 900_000, now, 15_000)))
    model = Model.objects.create(name="llama", max_context_tokens=8192)
    Pool.objects.create(name="chat", model=model, ttft_slo_ms=800)
    whole = ask(viewer, "?span=1h&pool=chat")
    assert [trace["name"] for trace in whole["figures"]["ttft"]["data"]] == ["chat p95", "chat p50", "chat p99"]
    assert whole["figures"]["ttft"]["layout"]["meta"]["thresholds"] == [{"text": "SLO of chat", "value": 0.8}]
    assert whole["stream"] == f"/dashboards/live?span=1h&pool=chat&layer=experience&after={whole['newest_ms']}"
    assert whole["points"] == 241
    assert {len(trace["x"]) for trace in whole["figures"]["ttft"]["data"]} == {241}


def test_each_chart_is_a_call_of_the_prometheus_api_too(viewer: Client) -> None:
    lines = {name: text for layer in LAYERS for name, text in ask(viewer, "?span=15m", layer)["curl"].items()}
    assert set(lines) == {chart.name for chart in CHARTS}
    assert "http://testserver/prometheus/api/v1/query_range" in lines["kv"]
    assert "headworks_engine_kv_cache_usage_ratio[60s]" in lines["kv"]
    # Each query, and the values as drawn.
    assert lines["ttft"].count("curl ") == 4
    assert "http://testserver/dashboards/ttft.csv?span=15m" in lines["ttft"]
    assert not re.search(r"\$(window|only)", "".join(lines.values()))


def test_what_was_chosen_stands_in_the_call(viewer: Client) -> None:
    lines = ask(viewer, "?span=15m&pool=chat&tenant=acme", LAYERS[1])["curl"]
    assert 'headworks_gateway_prompt_tokens_total{pool="chat",tenant="acme"}' in lines["tokens"]
    assert 'headworks_gateway_daily_budget_used_ratio{tenant="acme"}' in lines["budget"]


def test_a_chart_that_shows_more_than_was_chosen_says_so(viewer: Client) -> None:
    said = ask(viewer, "?span=1h&pool=chat&node=n-1", LAYERS[2])["unfiltered"]
    assert said["kv"] == ""
    assert said["compute"] == ""
    over_days = ask(viewer, "?span=7d&pool=chat&node=n-1", LAYERS[2])["unfiltered"]
    assert over_days["in_engines"] == "Of all nodes: its series do not tell them apart."


def test_charts_of_gpus_say_whose_nodes_they_show(viewer: Client) -> None:
    model = Model.objects.create(name="llama", max_context_tokens=4096)
    pool, node = Pool.objects.create(name="chat", model=model), Node.objects.create(name="n.1")
    Pool.objects.create(name="spare", model=model)
    for name in ("a", "b"):
        Engine.objects.create(name=name, node=node, pool=pool, url=f"http://{name}:1", served_model="llama")
    of_chat, of_spare = (ask(viewer, f"?span=15m&pool={name}", LAYERS[2]) for name in ("chat", "spare"))
    assert of_chat["notes"]["power"].endswith("Only nodes with engines of chat.")
    assert r"""{node=~"n\\.1"}""" in of_chat["curl"]["power"]
    assert of_spare["notes"]["power"].endswith("No node holds an engine of spare.")
    assert "query_range" not in of_spare["curl"]["power"]
    assert "/dashboards/power.csv?span=15m&pool=spare" in of_spare["curl"]["power"]
    assert not {**of_chat["unfiltered"], **of_spare["unfiltered"]}["power"]


def test_a_page_asks_once_which_nodes_hold_the_pool(viewer: Client) -> None:
    with CaptureQueriesContext(connection) as queries:
        ask(viewer, "?span=15m&pool=chat", LAYERS[2])
    assert sum('FROM "fleet_engine"' in each["sql"] for each in queries) == 1


def test_a_time_that_has_ended_is_not_live(viewer: Client) -> None:
    end = now_ms() // 3_600_000 * 3_600
    whole = ask(viewer, f"?from={end - 3_600}&to={end}")
    assert (whole["stream"], whole["newest_ms"], whole["points"]) == ("", end * 1000, 241)


def test_a_time_without_sense_is_refused_beside_what_was_typed(viewer: Client) -> None:
    page = viewer.get(f"{PAGE}?from=2030-01-31T12:00&to=%3Cscript%3E").content.decode()
    assert 'name="from" value="2030-01-31T12:00:00"' in page
    assert re.search(r'name="to" value="" aria-invalid="true" aria-describedby="between-refused"', page)
    assert "“&lt;script&gt;” is no time." in page
    whole = ask(viewer, "?from=2030-01-31T12:00&to=%3Cscript%3E")
    assert (whole["stream"] != "", whole["points"]) == (True, 181)


def test_kinds_of_marks_that_are_hidden_stay_so_by_the_address(viewer: Client) -> None:
    page = viewer.get(f"{PAGE}?hide=cordon,weather").content.decode()
    checked = set(re.findall(r'<input type="checkbox" value="(\w+)" checked>', page))
    assert checked == {"revision", "incident", "rollout"}
    assert 'name="hide" value="cordon"' in page


def test_a_page_opens_no_stream_of_the_frame_beside_its_own(viewer: Client) -> None:
    assert "data-own-stream" in viewer.get(PAGE).content.decode()
    assert "data-own-stream" not in viewer.get("/revisions/").content.decode()


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_each_layer_is_a_page_whose_tabs_keep_what_was_chosen(viewer: Client, layer: Layer) -> None:
    page = viewer.get(f"{PAGE}{layer.path}?span=6h&tenant=acme").content.decode()
    for other in LAYERS:
        assert f'href="{PAGE}{other.path}?span=6h&amp;tenant=acme"' in page
    found = re.search(r'<script id="_dash-config" type="application/json">(.*?)</script>', page)
    assert found
    assert json.loads(found[1])["requests_pathname_prefix"] == f"{PAGE}{layer.path}"
    [current] = re.findall(r'aria-current="page">([^<]+)</a>\s*(?=<a|</nav>)', page[page.index('class="tabs"') :])
    assert current == str(layer.title)


@pytest.mark.django_db(transaction=True)
async def test_a_callback_runs_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    loops: list[object] = []

    def look(*arguments: Any) -> dict[str, Any]:
        try:
            loops.append(asyncio.get_running_loop())
        except RuntimeError:
            loops.append(None)
        return whole_of(*arguments)

    monkeypatch.setattr(dash_app, "whole_of", look)
    client = AsyncClient()
    await client.aforce_login(await User.objects.acreate(username="vera", role=Role.VIEWER))
    answer = await client.post(CALLBACK, call(), content_type="application/json")
    assert answer.status_code == 200
    assert loops == [None]
    # Django's test client leaves the connection of the view's thread open.
    await sync_to_async(connections.close_all)()
