"""The overview: every pool in a sentence, what is wrong first, and a newcomer's first steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from controlplane.alerts.models import MaintenanceWindow, Silence
from controlplane.breakers import services as overrides
from controlplane.breakers.models import Override
from controlplane.configs import publisher
from controlplane.configs.hub import Hub, hub
from controlplane.core.models import Role, TargetKind, User
from controlplane.fleet.models import Engine, Node, Pool
from controlplane.fleet.services import ENGINES, POOLS
from controlplane.routing.services import ROUTES
from controlplane.telemetry import query
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.store.writer import Owner
from controlplane.tenants import services as tenants
from controlplane.web.shown import first_steps
from controlplane.web.shown.firing import SHOWN
from controlplane.web.shown.lately import CHANGES_SHOWN, changes
from controlplane.web.shown.overview import overview
from controlplane.web.shown.pools import pool_line
from tests.controlplane.telemetry.filling import store
from tests.web.conftest import acknowledge, new_target, write
from tests.web.diagnosed import found
from tests.web.hardware import MODEL, add_engine, fault, node
from tests.web.measured_pools import engine_series, gateway_series
from wire.problems import Problem
from wire.write_body import Series

Fill = Callable[[Iterable[Series]], None]
PAGE = "/overview/"


@pytest.fixture(autouse=True)
def fill(settings: Any, tmp_path: Path) -> Fill:
    settings.DATA_DIR = tmp_path
    return lambda series: store(store_path(), series, Owner("gateway", "edge-1"))


def served() -> None:
    """All that the first steps ask for, with the pool "chat" of two engines on one node."""
    node("rack-1", engines=["llama-a", "llama-b"])
    write(lambda unit: POOLS.update(unit, "chat", {"ttft_slo_ms": 2000, "tpot_slo_ms": 50}))
    write(lambda unit: ROUTES.create(unit, "all", {"order": 100, "pools": {"chat": 1000}}))
    write(lambda unit: tenants.create(unit, "acme", {}))
    write(lambda unit: tenants.create_key(unit, "acme", {"label": "first"}))
    for kind, name in (("gateway", "edge-1"), ("node", "rack-1")):
        new_target(kind, name)
    publisher.publish()


def text_of(page: str) -> str:
    """Without tags, and each run of spaces as one."""
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def row_of(page: str, pool: str) -> str:
    start = page.index(f'id="pool-{pool}"')
    return text_of(page[page.rindex("<tr", 0, start) : page.index("</tr>", start)])


def seen(client: Client) -> str:
    return client.get(PAGE).content.decode()


def test_it_is_the_start_page_of_people_of_the_whole_fleet(viewer: Client) -> None:
    assert viewer.get("/")["Location"] == PAGE
    limited = Client()
    limited.force_login(User.objects.create(username="tara", role=Role.VIEWER, tenants=["acme"]))
    assert limited.get("/")["Location"] == "/tenants/"
    assert limited.get(PAGE).status_code == 403


def test_a_newcomer_sees_the_first_steps_with_what_is_done_ticked(viewer: Client) -> None:
    assert [step.name for step in overview().steps if step.done] == []
    add_engine("llama-a", None)
    steps = {step.name: step.done for step in overview().steps}
    assert [name for name, done in steps.items() if done] == ["model", "pool", "engine"]
    page = text_of(seen(viewer))
    assert "done Make a pool" in page
    assert "to do Join a gateway Clients send their requests to it. This takes the role admin." in page


def test_a_step_is_offered_to_whom_may_do_it(viewer: Client, admin: Client) -> None:
    assert 'href="/targets/join/"' not in seen(viewer)
    assert 'href="/targets/join/"' in seen(admin)


def test_the_page_of_a_step_opens_for_whom_it_is_offered_and_for_nobody_below(
    db: None, browser_of: Callable[[Role | None], Client]
) -> None:
    steps = first_steps.steps(engines=0, pools=0, targets=[], has_keys=False)
    for role in Role:
        browser = browser_of(role)
        for step in steps:
            opens = browser.get(reverse(step.view)).status_code == 200
            # Keys are made on a page below that of all tenants, which everybody may read.
            assert opens == (role.covers(step.needs) or step.name == "key"), (step.name, role)


def test_the_steps_are_gone_once_requests_can_be_served(viewer: Client) -> None:
    served()
    assert overview().steps == []
    assert "first-steps" not in seen(viewer)


def test_a_pool_is_said_in_a_sentence_with_its_numbers(viewer: Client, fill: Fill) -> None:
    served()
    fill([*gateway_series("chat", per_second=4.0, met=0.99, queue=0.4),
          *engine_series("llama-a", "chat", "rack-1", kv_use=0.69),
          *engine_series("llama-b", "chat", "rack-1", kv_use=0.69)])  # fmt: skip
    row = row_of(seen(viewer), "chat")
    assert "ok 31 % of KV left, queue 0.4 s, engine time 1.2 s" in row
    assert "TTFT ≤ 2 s 99 % TPOT ≤ 50 ms 99 % Goodput 99 % of 95 %" in row
    assert re.search(r"of 95 % (3\.99|4\.0\d) 260,400 of 840,000 2 of 2", row)
    assert "/dashboards/?pool=chat" in seen(viewer)


def test_all_right_is_said_with_what_it_rests_on(viewer: Client, fill: Fill) -> None:
    served()
    for name in ("edge-1", "rack-1"):
        acknowledge(new_target(TargetKind.GATEWAY if name == "edge-1" else TargetKind.NODE, name))
    fill([*gateway_series("chat", per_second=4.0), *engine_series("llama-a", "chat", "rack-1", kv_use=0.5)])
    assert overview().state == "good"
    said = "all right 1 pool without trouble, no incident fires, 2 targets run the newest configuration"
    assert said in text_of(seen(viewer))


def test_what_is_wrong_is_said_first_and_the_worst_of_it_before_the_rest(viewer: Client, fill: Fill) -> None:
    served()
    acknowledge(new_target("gateway", "edge-1"), [Problem("/pools/chat", "reference", "no tokenizer")])
    fault("rack-1")
    fault("rack-1", "XID 13 on GPU 2", severity="warning")
    fill([*gateway_series("chat", per_second=4.0, met=0.8), *engine_series("llama-a", "chat", "rack-1", kv_use=0.95)])
    now = overview()
    assert now.state == "bad"
    assert [(each.state, each.about) for each in now.troubles] == [
        ("bad", "pools"), ("bad", "incidents"), ("bad", "targets"), ("wait", "incidents"), ("wait", "targets"),
    ]  # fmt: skip
    page = text_of(seen(viewer))
    assert "not all right promises missed: chat 1 critical incident configuration refused by edge-1 1 warning" in page
    assert "80 % of requests kept what is promised, 95 % shall the KV cache is full" in row_of(seen(viewer), "chat")
    assert "refused edge-1 no tokenizer" in page


def test_pools_with_trouble_come_first(viewer: Client) -> None:
    add_engine("llama-a", None)
    new_pool("broken")
    write(
        lambda unit: ENGINES.create(unit, "b", {"url": "http://10.0.0.9:8000", "pool": "broken", "served_model": "m"})
    )
    Engine.objects.filter(name="b").update(state="down")
    new_pool("a-new-one")
    assert [(line.name, line.state) for line in overview().pools] == [
        ("broken", "down"), ("chat", "unmeasured"), ("a-new-one", "empty"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "counted"),
    [
        ({"state": "down"}, "down"),
        ({"condition": "hung"}, "down"),
        ({"condition": "sleeping"}, "out"),
        ({"cordoned": True}, "out"),
        ({"held_out_by": "rollout 1"}, "out"),
        ({"state": "unknown"}, "unknown"),
        ({}, "up"),
    ],
)
def test_engines_are_counted_by_what_can_be_said_of_them(db: None, facts: dict[str, Any], counted: str) -> None:
    node("rack-1", engines=["llama-a"])
    Engine.objects.update(**facts)
    engines = overview().pools[0].facts.engines
    assert {name: getattr(engines, name) for name in ("up", "down", "out", "unknown") if getattr(engines, name)} == {
        counted: 1
    }


@pytest.mark.parametrize(("kind", "subject", "out"), [("pool", "chat", 2), ("engine", "llama-a", 1)])
def test_an_engine_that_a_person_keeps_from_work_by_its_breaker_is_out(
    db: None, kind: str, subject: str, out: int
) -> None:
    node("rack-1", engines=["llama-a", "llama-b"])
    force(kind, subject, "closed")
    assert overview().pools[0].facts.engines.up == 2
    force(kind, subject, "open")
    line = overview().pools[0]
    assert (line.facts.engines.out, line.facts.engines.up) == (out, 2 - out)
    assert (line.state == "down") == (out == 2)
    assert pool_line(Pool.objects.get(name="chat"))[0].engines.out == out


def test_an_override_that_has_expired_keeps_nothing_from_work(db: None) -> None:
    node("rack-1", engines=["llama-a"])
    force("pool", "chat", "open")
    Override.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert overview().pools[0].facts.engines.up == 1


def test_what_a_silent_agent_said_last_says_nothing_of_now(db: None) -> None:
    node("rack-1", engines=["llama-a"])
    Node.objects.update(reported_at=timezone.now() - timedelta(hours=3))
    assert overview().pools[0].facts.engines.unknown == 1


def test_old_readings_are_greyed_with_their_age(viewer: Client, fill: Fill) -> None:
    served()
    fill(engine_series("llama-a", "chat", "rack-1", kv_use=0.69, age_seconds=150))
    row = row_of(seen(viewer), "chat")
    assert row.startswith("chat")
    assert "stale 31 % of KV left" in row
    assert "its engines were last measured 2 min ago" in row
    assert "2 min ago 2 of 2" in row


def test_a_store_that_does_not_answer_is_said_and_nothing_is_shown_as_zero(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_args: object, **_kwargs: object) -> None:
        raise query.QueryError("the store is away")

    served()
    monkeypatch.setattr(query, "instant", away)
    page = seen(viewer)
    assert "No numbers of requests, queues and KV caches: the store is away" in text_of(page)
    assert "not measured nothing is measured" in row_of(page, "chat")
    assert " 0" not in row_of(page, "chat")
    assert "the metrics store does not answer" in text_of(page)


def test_the_rest_names_what_limits_changed_and_is_muted(viewer: Client) -> None:
    served()
    found()
    now = timezone.now()
    Silence.objects.create(
        name="night work", matchers=["a=b"], starts_at=now, ends_at=now + timedelta(hours=1), comment="x"
    )
    Silence.objects.create(name="over", matchers=["a=b"], starts_at=now, ends_at=now, comment="x")
    days = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
    always = {"matchers": ["a=b"], "days": days, "starts": "00:00"}
    MaintenanceWindow.objects.create(name="every day", ends="00:00", **always)
    page = text_of(viewer.get("/overview-lately/").content.decode())
    assert "KV cache exhausted · Pool kv" in text_of(seen(viewer))
    assert "night work" in page
    assert "every day maintenance window" in page
    assert "on over" not in page
    assert "made target" in page


def test_a_name_shows_as_itself(viewer: Client) -> None:
    served()
    fault("rack-1", 'a <script>alert("x")</script> & o\'clock')
    page = seen(viewer)
    assert "<script>alert" not in page
    assert "a &lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; &amp; o&#x27;clock" in page


def test_the_panel_is_what_the_page_shows(viewer: Client) -> None:
    served()
    part = viewer.get("/overview-panel/").content.decode()
    assert row_of(part, "chat") == row_of(seen(viewer), "chat")
    assert "<html" not in part


def test_what_comes_after_the_rest_has_its_place_and_the_way_there_before(viewer: Client) -> None:
    page = viewer.get("/overview/").content.decode()
    rest = page[page.index('hx-get="/overview-lately/"') :]
    later = viewer.get("/overview-lately/").content.decode()
    titles = re.findall(r"<h2>.*?</h2>", later)
    assert len(titles) == rest.count('class="loading"') + rest.count('class="quiet loading"') > 0
    for part in (*titles, 'href="/audit/"', 'href="/silences/"'):
        assert part in rest, part
        assert part in later, part


def new_pool(name: str) -> None:
    write(lambda unit: POOLS.create(unit, name, {"model": MODEL}))


def force(kind: str, subject: str, state: str) -> None:
    body = {"subject_kind": kind, "subject": subject, "state": state, "expires_in_seconds": 600}
    write(lambda unit: overrides.force(unit, body))


def fill_racks(numbers: range) -> None:
    for number in numbers:
        node(f"rack-{number}", engines=[f"e-{number}-{place}" for place in range(2)])
        fault(f"rack-{number}")
        new_pool(f"pool-{number}")


def test_queries_do_not_grow_with_the_fleet(viewer: Client) -> None:
    served()
    # The first page of a log-in is noted in its session.
    seen(viewer)
    counts = []
    for numbers in (range(10, 12), range(12, 20)):
        fill_racks(numbers)
        with CaptureQueriesContext(connection) as queries:
            seen(viewer)
        counts.append(len(queries))
    assert counts[0] == counts[1]
    assert len(overview().firing.worst) == SHOWN
    assert len(changes()) == CHANGES_SHOWN


def test_a_page_in_operation_asks_the_database_at_most_ten_times(
    viewer: Client, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process whose hub runs, what the frame and the page have in common is read once."""
    served()
    fill_racks(range(10, 14))
    fill(gateway_series("chat", per_second=4.0))
    seen(viewer)
    monkeypatch.setattr(Hub, "running", True)
    hub.note_change()
    with CaptureQueriesContext(connection) as queries:
        seen(viewer)
    hub.note_change()
    assert len(queries) <= 10
