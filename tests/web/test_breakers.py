"""Breakers: what gateways told, since when, what failed; overrides from the form to their end; all that is forced."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from controlplane.breakers.models import Override
from controlplane.configs import publisher
from controlplane.configs.hub import Hub, hub
from controlplane.fleet.services import ENGINES, NODES, POOLS
from controlplane.telemetry import query
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.store.writer import Owner
from controlplane.tenants import services as tenants
from controlplane.web import convergence, kept
from controlplane.web.shown import firing
from controlplane.web.views import breakers as breakers_view
from tests.controlplane.telemetry.filling import store
from tests.web.conftest import digest_of, new_target, write
from tests.web.hardware import MODEL, add_engine, node
from wire.write_body import Series

pytestmark = pytest.mark.django_db
STATES = ("closed", "open", "half_open")


@pytest.fixture(autouse=True)
def own_store(settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path


@pytest.fixture
def pool(acme: str) -> str:
    """The pool "chat" of two engines, and two gateways."""
    node("rack-1", engines=["llama-a", "llama-b"])
    for gateway in ("edge-1", "edge-2"):
        new_target("gateway", gateway)
    return "chat"


def told(gateway: str, engine: str, *history: tuple[int, str]) -> None:
    """What a gateway pushed of one engine: seconds ago and the state, as far as the next one."""
    labels = {"__name__": "headworks_gateway_breaker_state", "pool": "chat", "engine": engine, "gateway": gateway}
    moments = moments_of(history)
    series = [
        Series({**labels, "state": state}, [(at, float(state == now)) for at, now in moments]) for state in STATES
    ]
    store(store_path(), series, Owner("gateway", gateway))


def moments_of(history: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    now_ms = int(time.time() * 1000)
    ends = [*(ago for ago, _state in history[1:]), 0]
    return [
        (now_ms - 1000 * ago, state)
        for (begins, state), ends_ago in zip(history, ends, strict=True)
        for ago in range(begins, ends_ago, -5)
    ]


def requests(**counts: float) -> None:
    """Requests of the pool "chat" by outcome, or by the reason that they failed for, within the last minutes."""
    now_ms = int(time.time() * 1000)
    series = []
    for reason, count in counts.items():
        outcome = "ok" if reason == "ok" else "failed"
        labels = {"pool": "chat", "gateway": "edge-1", "outcome": outcome, "reason": "" if reason == "ok" else reason}
        points = [(now_ms - 1000 * ago, count * (1 - ago / 300)) for ago in range(300, -1, -15)]
        series.append(Series({"__name__": "headworks_gateway_requests_total", **labels}, points))
    store(store_path(), series, Owner("gateway", "edge-1"))


def page(client: Client, path: str = "/breakers/") -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return answer.content.decode()


def line_of(shown: str, engine: str) -> str:
    after = shown[shown.index(f'id="engine-{engine}"') :]
    return after[: min(after.index(end) for end in ("</tr>", "</dd>") if end in after)]


def forced(client: Client, **typed: str) -> Override:
    """Force a breaker by the form, for a reason."""
    path = "/breakers/overrides-new/"
    reviewed = client.post(path, {**typed, "step": "review"})
    form = {**typed, "step": "apply", "digest": digest_of(reviewed.content.decode()), "reason": "it answers nonsense"}
    answer = client.post(path, form)
    assert answer.status_code == 302, answer.content.decode()
    assert answer["Location"].startswith("/breakers/?change=")
    return Override.objects.latest("pk")


def test_each_breaker_says_its_state_at_each_gateway(pool: str, viewer: Client) -> None:
    told("edge-1", "llama-a", (60, "closed"))
    told("edge-2", "llama-a", (600, "closed"), (300, "open"))
    told("edge-1", "llama-b", (60, "closed"))
    shown = page(viewer)
    troubled = line_of(shown, "llama-a")
    assert (
        troubled.index("open") < troubled.index("edge-2") < troubled.index("closed</span>") < troubled.index("edge-1")
    )
    assert "5 min ago" in troubled or "4 min ago" in troubled
    quiet = line_of(shown, "llama-b")
    assert "unknown" in quiet
    assert shown.index('id="engine-llama-a"') < shown.index("1 more engine") < shown.index(quiet)


def test_one_that_was_never_seen_closed_is_open_for_longer_than_is_known(pool: str, viewer: Client) -> None:
    told("edge-1", "llama-a", (120, "half_open"))
    assert "for longer than is known" in line_of(page(viewer), "llama-a")


def test_a_pool_with_an_open_breaker_says_what_failed_and_its_thresholds(pool: str, viewer: Client) -> None:
    told("edge-1", "llama-a", (60, "closed"), (30, "open"))
    requests(ok=100, engine_error=40, engine_unreachable=20)
    shown = page(viewer)
    assert (
        "60 of 160 requests of this pool failed: <code>engine_error</code> 40, <code>engine_unreachable</code> 20."
        in shown
    )
    assert "Opens at 20 % errors of at least 20 requests in 30 s; after 10 s it lets 3 requests try." in shown


def test_a_store_that_fails_is_said_and_overrides_are_shown_all_the_same(
    pool: str, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced(operator, subject="pool/chat", state="open", lasts="900")

    def fails(*_args: Any, **_options: Any) -> Any:
        raise query.QueryError("the disk is gone")

    monkeypatch.setattr(query, "instant", fails)
    shown = page(operator)
    assert "What gateways told last is not known: the disk is gone" in shown
    assert "forced open" in shown


def test_an_override_is_reviewed_holds_and_is_ended(pool: str, operator: Client) -> None:
    assert "<optgroup" in page(operator, "/breakers/overrides-new/?subject=engine/llama-a")
    typed = {"subject": "engine/llama-a", "state": "open", "lasts": "other", "typed": "45m"}
    reviewed = operator.post("/breakers/overrides-new/", {**typed, "step": "review"}).content.decode()
    assert "the other engines of its pool take them" in reviewed
    assert "override</h3>" not in reviewed
    assert "engine llama-a" in reviewed
    row = forced(operator, **typed)
    assert (row.subject, row.state, row.owner, row.reason) == (
        "llama-a", "open", "operator-person", "it answers nonsense",
    )  # fmt: skip
    assert timedelta(minutes=44) < row.expires_at - timezone.now() <= timedelta(minutes=45)
    publisher.publish()
    shown = page(operator)
    assert "forced open" in line_of(shown, "llama-a")
    assert ">0:4" in shown[shown.index('id="in-force"') :]
    assert "End it" in line_of(shown, "llama-a")
    end = f"/breakers/overrides/{row.name}/end/"
    digest = digest_of(page(operator, end))
    assert operator.post(end, {"step": "apply", "digest": digest, "reason": "well again"}).status_code == 302
    after = page(operator)
    assert "Nothing is forced by hand." in after
    history = after[after.index('id="history"') :]
    assert history.index("well again") < history.index("it answers nonsense")
    assert operator.get(end).status_code == 404


def test_an_expired_override_is_gone_from_the_page_before_it_is_swept(pool: str, operator: Client) -> None:
    row = forced(operator, subject="pool/chat", state="closed", lasts="900")
    assert "forced closed" in page(operator, "/breakers-panel/")
    Override.objects.filter(pk=row.pk).update(expires_at=timezone.now())
    assert "forced closed" not in page(operator, "/breakers-panel/")


def test_a_shadowed_override_says_which_one_holds(pool: str, operator: Client) -> None:
    forced(operator, subject="pool/chat", state="closed", lasts="3600")
    forced(operator, subject="pool/chat", state="open", lasts="900")
    shown = page(operator)
    assert "a stricter one holds" in shown
    assert "then 1 other override" in shown


# Changed fields, and what is said at one of them.
REFUSED = [
    ({"lasts": "other", "typed": "soon"}, "Give a time, such as 45m or 2h."),
    ({"lasts": "other", "typed": "2d"}, "Give one second to one day."),
    ({"lasts": "other", "typed": ""}, "Give "),
    ({"subject": "pool/nobody"}, "nobody"),
    ({"state": "ajar"}, "ajar"),
]


def test_the_form_refuses_with_the_field_and_keeps_what_was_typed(pool: str, operator: Client) -> None:
    for typed, said in REFUSED:
        whole = {"subject": "engine/llama-a", "state": "open", "lasts": "3600", **typed, "step": "review"}
        answer = operator.post("/breakers/overrides-new/", whole)
        assert answer.status_code == 422, typed
        shown = answer.content.decode()
        assert said in shown, typed
        assert f'value="{whole.get("typed")}"' in shown or not whole.get("typed"), typed


def test_forcing_one_open_says_whose_requests_it_keeps_out(
    pool: str, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breakers_view, "tenants_of", lambda pools: f"acme sent 7 requests there ({','.join(pools)}).")
    typed = {"subject": "engine/llama-a", "lasts": "900", "step": "review"}
    reviewed = operator.post("/breakers/overrides-new/", {**typed, "state": "open"}).content.decode()
    assert "acme sent 7 requests there (chat)." in reviewed
    assert "danger-button" in reviewed
    assert "acme sent" not in operator.post("/breakers/overrides-new/", {**typed, "state": "closed"}).content.decode()


def test_all_that_is_forced_by_hand_stands_in_one_place(pool: str, operator: Client, viewer: Client) -> None:
    write(lambda unit: NODES.cordon(unit, "rack-1"))
    write(lambda unit: ENGINES.cordon(unit, "llama-a"))
    write(lambda unit: tenants.give_temporary_limits(unit, "acme", {"tpm_limit": 9000, "expires_in_seconds": 600}))
    forced(operator, subject="pool/chat", state="open", lasts="86400")
    shown = page(operator)
    place = shown[shown.index('id="in-force"') : shown.index('id="pool-chat"')]
    assert place.index("/tenants/acme/") < place.index("#pool-chat") < place.index("/fleet/rack-1/")
    assert "Tokens per minute 9,000" in place
    assert "no end" in place
    for end in ("/tenants/acme/temporary-limits/end/", "/fleet/rack-1/uncordon/", "/engines/llama-a/uncordon/"):
        assert end in place
        assert end not in page(viewer)


def test_a_page_without_pools_or_gateways_says_so(acme: str, viewer: Client) -> None:
    assert "No pool." in page(viewer)
    add_engine("llama-a", None)
    assert "no gateway has joined" in page(viewer)


def test_many_engines_and_pools_take_few_queries(
    pool: str,
    operator: Client,
    monkeypatch: pytest.MonkeyPatch,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    """In a process whose hub runs, where the page and its frame read the targets once."""
    for number in range(20):
        add_engine(f"e{number}", None)
    write(lambda unit: [POOLS.create(unit, f"p{number}", {"model": MODEL}) for number in range(20)])
    forced(operator, subject="engine/e1", state="open", lasts="900")
    write(lambda unit: tenants.give_temporary_limits(unit, "acme", {"tpm_limit": 9000, "expires_in_seconds": 600}))
    monkeypatch.setattr(Hub, "running", True)
    # The page takes longer than what is shared is kept on a busy machine.
    monkeypatch.setattr(kept, "KEPT_SECONDS", 3600)
    # After a change, but for whether anything is simulated.
    page(operator, "/audit/")
    for shared in (convergence._standing, firing._firing):
        monkeypatch.setattr(shared, "_changes", -1)
    with django_assert_max_num_queries(10):
        page(operator)
    hub.note_change()


def test_who_cordoned_costs_a_query_however_many(
    pool: str, viewer: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(20):
        add_engine(f"e{number}", None)
    with CaptureQueriesContext(connection) as before:
        page(viewer)
    write(lambda unit: [ENGINES.cordon(unit, f"e{number}") for number in range(20)])
    with django_assert_max_num_queries(len(before) + 1):
        page(viewer)


def test_names_and_reasons_show_as_themselves(pool: str, operator: Client) -> None:
    forced(operator, subject="pool/chat", state="open", lasts="900")
    Override.objects.update(reason="<script>alert(1)</script> ığüş")
    shown = page(operator)
    assert "<script>alert" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt; ığüş" in shown
