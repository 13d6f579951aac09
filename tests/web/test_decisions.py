"""The pages of decisions: the newest refusals, and why one request was refused."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from django.test import Client
from django.utils.html import escape

from controlplane.core.models import Role, User
from controlplane.telemetry.decisions import log
from controlplane.telemetry.models import Decision
from controlplane.web.shown import decisions as pages
from gateway.batches.line_run import LINE_STAGES
from tests.web import hardware
from tests.web.conftest import new_target
from tests.web.telling import refusal
from wire.messages import StageNote

GATEWAY = Path(__file__).parents[2] / "gateway"
MARKUP = "<script>alert(1)</script>"


def listed(page: str) -> list[str]:
    return re.findall(r'<td class="title words"><a [^>]*>([^<]*)</a>', page)


def get(client: Client, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status
    return answer.content.decode()


def test_the_newest_refusals_come_first_and_admitted_requests_not_at_all(acme: str, viewer: Client) -> None:
    refusal("r-1")
    refusal("r-2", reason="admitted", status=200, stage="serve")
    refusal("r-3")
    assert listed(get(viewer, "/decisions/")) == ["r-3", "r-1"]


def test_refusals_are_filtered_by_tenant_reason_and_gateway(acme: str, viewer: Client) -> None:
    refusal("r-1")
    refusal("r-2", reason="no_engine", status=503, tenant="gone")
    refusal("r-3", gateway="edge-2")
    for query, expected in {
        "tenant=unknown": ["r-2"],
        "reason=tpm_limit": ["r-3", "r-1"],
        "gateway=edge-2": ["r-3"],
        "tenant=acme&reason=tpm_limit&gateway=edge-1": ["r-1"],
        "tenant=acme&reason=no_engine": [],
        "gateway=a%00b": [],
    }.items():
        assert listed(get(viewer, f"/decisions/?{query}")) == expected, query
    assert "No refusal is like that." in get(viewer, "/decisions/?tenant=nobody")


def test_filters_offer_what_there_is_and_what_is_chosen(acme: str, viewer: Client) -> None:
    new_target("gateway", "edge-1")
    new_target("node", "rack-1")
    refusal("r-1")
    refusal("r-2", reason="admitted", status=200)
    page = get(viewer, "/decisions/?gateway=edge-7")
    offered = {
        name: re.findall(r'<option value="[^"]+"(?: selected)?>([^<]*)</option>', options)
        for name, options in re.findall(r'<select id="(\w+)" name="\w+">(.*?)</select>', page, re.DOTALL)
    }
    spans = ["last 5 min", "last 15 min", "last 60 min", "last 6 h", "last 24 h"]
    assert offered == {
        "tenant": ["acme"], "pool": [], "reason": ["tpm_limit"], "gateway": ["edge-1", "edge-7"], "minutes": spans,
    }  # fmt: skip
    assert '<option value="edge-7" selected>edge-7</option>' in page


def test_a_time_takes_the_refusals_since_then_and_rest_is_told_the_moment(acme: str, viewer: Client) -> None:
    refusal("r-1")
    Decision.objects.update(received_ms=int((time.time() - 600) * 1000))
    refusal("r-2")
    page = get(viewer, "/decisions/?minutes=5")
    assert listed(page) == ["r-2"]
    assert "since=20" in page
    assert '<option value="5" selected>' in page
    assert listed(get(viewer, "/decisions/?minutes=15")) == ["r-2", "r-1"]
    # What is none of these is no filter.
    for other in ("7", "-1", "x"):
        assert listed(get(viewer, f"/decisions/?minutes={other}")) == ["r-2", "r-1"]


def test_older_refusals_are_on_the_next_page(acme: str, viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.web.views.decisions.ROWS_PER_PAGE", 2)
    for number in range(3):
        refusal(f"r-{number}")
    first = get(viewer, "/decisions/?tenant=acme")
    assert listed(first) == ["r-2", "r-1"]
    found = re.search(r'href="(/decisions/\?tenant=acme&amp;after=\d+)"', first)
    assert found
    older = get(viewer, found[1].replace("&amp;", "&"))
    assert listed(older) == ["r-0"]
    # What is new has no place on it.
    assert "hx-trigger" not in older


def test_a_request_leads_to_its_tenant_where_that_is_known(acme: str, viewer: Client) -> None:
    refusal("r-1")
    refusal("r-2", tenant="gone")
    assert '<a href="/tenants/acme/">acme</a>' in get(viewer, "/decisions/request/?id=r-1")
    page = get(viewer, "/decisions/request/?id=r-2")
    assert "/tenants/unknown/" not in page
    assert "<dd>unknown</dd>" in page


def test_a_request_leads_to_its_pool_and_a_pool_and_a_tenant_to_their_refusals(
    acme: str, viewer: Client, browser_of: Callable[[Role | None], Client]
) -> None:
    hardware.node("rack-1", engines=["llama-a"])
    refusal("r-1", pool="chat")
    refusal("r-2", pool="gone")
    assert '<a href="/pools/chat/">chat</a>' in get(viewer, "/decisions/request/?id=r-1")
    assert "/pools/gone/" not in get(viewer, "/decisions/request/?id=r-2")
    assert 'href="/decisions/?tenant=acme"' in get(viewer, "/tenants/acme/")
    assert 'href="/decisions/?pool=chat"' in get(viewer, "/pools/chat/")
    # Pools are no matter of a tenant's people; why their requests were refused is.
    theirs = browser_of(Role.OPERATOR)
    User.objects.filter(role=Role.OPERATOR).update(tenants=["acme"])
    assert 'href="/decisions/?tenant=acme"' in get(theirs, "/tenants/acme/")
    assert "/pools/chat/" not in get(theirs, "/decisions/request/?id=r-1")


@pytest.mark.parametrize("after", ["x", "-1", "1" * 30, "%00", "²"])
def test_a_page_that_nobody_gave_is_the_first(acme: str, viewer: Client, after: str) -> None:
    refusal("r-1")
    assert listed(get(viewer, f"/decisions/?after={after}")) == ["r-1"]


def test_without_refusals_it_says_where_to_look(viewer: Client, settings: object) -> None:
    page = get(viewer, "/decisions/")
    assert "No request was refused." in page
    assert "kept for 24 hours" in page
    assert 'class="button" href="/targets/"' in page


def test_a_request_shows_how_far_it_came_and_what_was_weighed(acme: str, viewer: Client) -> None:
    refusal("r-1", numbers={"limit": 60_000, "retry_after_ms": 480, "queue_ms": 12_000, "other_tokens": 7})
    page = get(viewer, "/decisions/request/?id=r-1")
    assert "500 tokens are asked for and 20 of 60000 tokens a minute are left" in page
    steps = dict(re.findall(r'<li class="(passed|ended|ahead)">([^<]*?)(?: <|</li>)', page))
    assert (steps["passed"], steps["ended"], steps["ahead"]) == ("note the arrival", "take quota", "serve")
    facts = dict(re.findall(r"<dt>([^<]*)</dt><dd>(?:<a [^>]*>)?([^<]*)", page))
    assert facts["Limit"] == "60,000"
    assert facts["Try again after"] == "480 ms"
    assert (facts["Waited"], facts["other_tokens"]) == ("12 s", "7")
    assert (facts["Tenant"], facts["Gateway"], facts["By revision"]) == ("acme", "edge-1", "1")
    assert "http://testserver/api/v1/decisions/r-1" in page


def test_an_id_that_was_used_again_shows_all_of_it(acme: str, viewer: Client) -> None:
    refusal("r-1")
    refusal("r-1", reason="admitted", status=200, stage="serve", gateway="edge-2", message="", numbers={})
    page = get(viewer, "/decisions/request/?id=%20r-1%20")
    assert page.count('class="card decision"') == 2
    admitted = page.split('class="card decision"')[1]
    assert "admitted" in admitted
    assert 'class="ended"' not in admitted
    assert 'class="ahead"' not in admitted


@pytest.mark.parametrize("request_id", ["a/b?c#d", "../..", "%", "ü", '"'])
def test_any_id_that_a_client_chose_is_found_from_the_list(acme: str, viewer: Client, request_id: str) -> None:
    refusal(request_id)
    found = re.search(r'<td class="title words"><a href="([^"]*)"', get(viewer, "/decisions/"))
    assert found
    assert escape(request_id) in get(viewer, found[1])


def test_what_gateways_tell_is_text(acme: str, viewer: Client) -> None:
    refusal(MARKUP, message=MARKUP)
    for path in ("/decisions/", f"/decisions/request/?id={MARKUP}"):
        page = get(viewer, path)
        assert MARKUP not in page
        assert escape(MARKUP) in page


def test_a_request_of_which_nothing_is_kept_says_why(viewer: Client) -> None:
    page = get(viewer, "/decisions/request/?id=nobody%00", 404)
    assert "No decision of this request is kept." in page
    assert 'href="/decisions/"' in page
    assert viewer.get("/decisions/request/?id=%20")["Location"] == "/decisions/"


def test_who_is_limited_to_a_tenant_sees_that_alone(acme: str) -> None:
    refusal("r-1")
    refusal("r-2", tenant="gone", reason="rpm_limit")
    new_target("gateway", "edge-9")
    client = Client()
    client.force_login(User.objects.create(username="tess", role=Role.VIEWER, tenants=["acme"]))
    page = get(client, "/decisions/")
    assert listed(page) == ["r-1"]
    for of_others in ("gone", "rpm_limit", "edge-9"):
        assert of_others not in page
    get(client, "/decisions/request/?id=r-1")
    get(client, "/decisions/request/?id=r-2", 404)


def test_stages_stand_in_the_order_of_a_gateway() -> None:
    assert list(pages.STAGES) == ["receive", *(stage.__name__ for stage in LINE_STAGES)]


def numbers_of_gateways() -> set[str]:
    """The names in calls of `note`, and those that are put into what is called `numbers`."""
    found: set[str] = set()
    for file in GATEWAY.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(attr="note"), keywords=keywords):
                    found |= {keyword.arg for keyword in keywords if keyword.arg}
                case (
                    ast.keyword(arg="numbers", value=ast.Dict(keys=keys))
                    | ast.Assign(targets=[ast.Name("numbers")], value=ast.Dict(keys=keys))
                    | ast.AugAssign(target=ast.Name("numbers"), value=ast.Dict(keys=keys))
                ):
                    found |= {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
                case ast.Subscript(value=ast.Name("numbers"), slice=ast.Constant(str(name))):
                    found.add(name)
    return found


def test_every_number_that_a_gateway_weighs_has_a_name_in_words() -> None:
    weighed = numbers_of_gateways()
    assert {"prompt_tokens", "kv_tokens", "retry_after_ms", "rpm_limit", "late_by_ms"} <= weighed
    assert weighed - set(pages.NUMBERS) == set()


def test_each_stage_is_shown_with_its_time_and_what_it_weighed(acme: str, viewer: Client) -> None:
    way = [StageNote("measure", 1_250, {"prompt_tokens": 1_300}), StageNote("take_budget", 7)]
    refusal("r-1", stages=way)
    refusal("r-2")
    page = get(viewer, "/decisions/request/?id=r-1")
    assert re.findall(r'<td class="title">([^<]*)</td><td class="number"[^>]*>([^<]*)<', page) == [
        ("count tokens", "1.250 ms"),
        ("take_budget", "0.007 ms"),
    ]
    assert "Prompt tokens <strong>1,300</strong>" in page
    assert "Stage by stage" not in get(viewer, "/decisions/request/?id=r-2")


def test_a_stage_of_a_later_version_stands_alone() -> None:
    assert pages.steps("take_budget", admitted=False) == [("take_budget", "ended")]


def test_the_reasons_that_are_offered_are_bounded(acme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "REASONS_MAX", 2)
    for reason in ("c", "a", "b", "a", "admitted"):
        refusal("r-1", reason=reason, gateway=f"edge-{reason}")
    assert log.reasons_of_refusals() == ["a", "b"]
