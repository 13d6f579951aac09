"""The pages of pools: how each stands, what leads there, and its forms."""

from __future__ import annotations

import re
import string
import time
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from controlplane.breakers.services import force
from controlplane.core.changes import UnitOfWork
from controlplane.core.models import User
from controlplane.fleet.models import Engine, Pool
from controlplane.fleet.services import MODELS, POOLS
from controlplane.routing.services import ROUTES
from controlplane.telemetry import query
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.store.writer import Owner
from controlplane.web.forms.arguments import ArgumentsField
from controlplane.web.views.pools import lowers
from tests.controlplane.telemetry.filling import store
from tests.web.asking import page
from tests.web.conftest import digest_of, write
from tests.web.hardware import MODEL, add_engine, node
from tests.web.traffic import measured
from wire.canonical import MAX_INTEGER
from wire.write_body import Series

pytestmark = pytest.mark.django_db
FORM = {
    "model": MODEL, "work": "short", "ttft_slo_ms": "800", "tpot_slo_ms": "", "e2e_slo_ms": "",
    "objective_permille": "95", "kv_admit_permille": "90", "stale_telemetry": "hold", "max_concurrency": "",
    "queue_cap": "64", "queue_ttl_ms": "5", "error_permille": "20", "timeout_permille": "50", "timeout_ms": "0",
    "minimum_requests": "20", "window_ms": "30", "cooldown_ms": "10", "half_open_probes": "3",
    "engine_arguments": "max-num-seqs=64", "adapters": "support=/srv/adapters/support",
}  # fmt: skip


@pytest.fixture(autouse=True)
def own_store(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path
    return store_path()


@pytest.fixture
def chat(db: None) -> Pool:
    """A pool of two engines, one of them down, to which a route leads."""
    node("rack-1", engines=["llama-a", "llama-b"])
    Engine.objects.filter(name="llama-b").update(state="down")
    write(lambda unit: ROUTES.create(unit, "everything", {"pools": {"chat": 1000}}))
    return Pool.objects.get(name="chat")


def row_of(text: str, name: str) -> str:
    start = text.index(f'id="pool-{name}"')
    return text[start : text.index("</tr>", start)]


def sent(client: Client, path: str, status: int, **change: str) -> str:
    answer = client.post(path, {**FORM, "step": "review", **change})
    assert answer.status_code == status, answer.content.decode()
    return answer.content.decode()


def applied(client: Client, path: str, **change: str) -> str:
    """Where it leads, once what the review shows was done for a reason."""
    digest = digest_of(sent(client, path, 200, **change))
    answer = client.post(path, {**FORM, **change, "step": "apply", "digest": digest, "reason": "a test"})
    assert answer.status_code == 302, answer.content.decode()
    return answer["Location"]


def test_a_row_says_how_a_pool_stands(chat: Pool, own_store: Path, viewer: Client) -> None:
    write(lambda unit: POOLS.update(unit, "chat", {"ttft_slo_ms": 400, "kv_admit_permille": 700}))
    bucket, ended = "headworks_gateway_ttft_seconds_bucket", "headworks_gateway_requests_total"
    of_chat = ("pool=chat", "tenant=acme")
    measured(
        own_store,
        {
            ("headworks_engine_kv_cache_usage_ratio", "pool=chat", "engine=llama-a"): 0.75,
            ("headworks_gateway_queue_length", "pool=chat"): 17.0,
            ("headworks_gateway_pool_breaker_state", "pool=chat", "state=open"): 1.0,
            ("headworks_gateway_breaker_state", "pool=chat", "engine=llama-b", "state=open"): 1.0,
        },
        {
            (bucket, *of_chat, "le=0.5"): 0.0,
            (bucket, *of_chat, "le=1"): 900.0,
            (bucket, *of_chat, "le=+Inf"): 900.0,
            (ended, *of_chat, "outcome=ok", "reason=none"): 5400.0,
        },
    )
    row = row_of(page(viewer, "/pools/"), "chat")
    assert "25 %" in row
    assert ">17</td>" in row
    assert ">3.0</td>" in row
    assert "975 ms" in row
    assert "of 400 ms" in row
    # KV cache is beyond what is admitted, and TTFT beyond what is promised: said in words too.
    assert row.count("beyond what it should be") == 2
    assert "at 1 gateway" in row
    assert "open for 1 engine" in row
    assert ">1</strong>" in row
    assert "of 2 up" in row
    assert "1 not watched" not in row
    assert "everything" in row
    assert "100 %" in row


def test_one_pool_shows_its_settings_engines_and_who_used_it(chat: Pool, own_store: Path, viewer: Client) -> None:
    ended, tokens = "headworks_gateway_requests_total", "headworks_gateway_prompt_tokens_total"
    measured(
        own_store,
        {},
        {
            (ended, "pool=chat", "tenant=acme", "outcome=ok", "reason=none"): 1000.0,
            (ended, "pool=chat", "tenant=acme", "outcome=refused", "reason=tpm_limit"): 200.0,
            (ended, "pool=other", "tenant=beta", "outcome=ok", "reason=none"): 500.0,
            (tokens, "pool=chat", "tenant=acme"): 50_000.0,
            ("headworks_gateway_generation_tokens_total", "pool=chat", "tenant=acme"): 10_000.0,
        },
    )
    text = page(viewer, "/pools/chat/")
    usage = text[text.index('id="usage"') : text.index('id="settings"')]
    assert 'href="/tenants/acme/"' in usage
    # Counters are drawn out to the window's ends.
    assert re.search(r">1,2[01]\d</td>", usage)
    assert "beta" not in usage
    settings = text[text.index('id="settings"') :]
    assert "Requests that may wait" in settings
    assert "llama-b" in text[text.index('id="engines"') :]
    assert f'href="/models/{MODEL.replace("/", "~")}/"' in text
    assert "?pool=chat" in text
    assert "/edit/" not in text


def test_without_numbers_it_says_why_and_shows_dashes(chat: Pool, viewer: Client, monkeypatch: Any) -> None:
    def fails(*_args: Any, **_options: Any) -> Any:
        raise query.QueryError("the disk is gone")

    monkeypatch.setattr(query, "instant", fails)
    text = page(viewer, "/pools/")
    assert "No live values of pools: the disk is gone" in text
    assert "–" in row_of(text, "chat")
    assert "Not known: the disk is gone" in page(viewer, "/pools/chat/")


def test_what_was_measured_long_ago_is_said_to_be_old(chat: Pool, own_store: Path, viewer: Client) -> None:
    usage = {"__name__": "headworks_engine_kv_cache_usage_ratio", "pool": "chat", "engine": "llama-a"}
    now_ms = int(time.time() * 1000)
    store(own_store, [Series(usage, [(now_ms - 150_000, 0.4)])], Owner("node", "rack-1"))
    for text in (row_of(page(viewer, "/pools/"), "chat"), page(viewer, "/pools/chat/")):
        assert "60 %" in text
        assert "2 min ago" in text


def test_a_forced_breaker_is_shown(chat: Pool, viewer: Client) -> None:
    override = {"subject_kind": "pool", "subject": "chat", "state": "open", "expires_in_seconds": 60}
    write(lambda unit: force(unit, override))
    assert "forced open" in row_of(page(viewer, "/pools/"), "chat")


def test_the_list_asks_no_more_where_there_are_many(viewer: Client) -> None:
    def make(unit: UnitOfWork) -> None:
        MODELS.create(unit, "m", {"max_context_tokens": 8192})
        for number in range(60):
            POOLS.create(unit, f"p-{number}", {"model": "m"})
            ROUTES.create(unit, f"r-{number}", {"pools": {f"p-{number}": 1000}})

    write(make)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        page(viewer, "/pools/")
    assert len(queries) <= 10, [each["sql"][:120] for each in queries]


def test_an_empty_fleet_says_what_to_do_first(viewer: Client, operator: Client) -> None:
    assert "Make its model first" in page(viewer, "/pools/")
    assert "/pools-new/" not in page(viewer, "/pools/")
    assert "/pools-new/" in page(operator, "/pools/")


def test_a_pool_is_made_changed_and_deleted(operator: Client) -> None:
    write(lambda unit: MODELS.create(unit, MODEL, {"max_context_tokens": 131_072}))
    assert applied(operator, "/pools-new/", name="night").startswith("/pools/night/?change=")
    row = Pool.objects.get()
    assert (row.queue_ttl_ms, row.ttft_slo_ms, row.breaker_error_permille) == (5000, 800, 200)
    assert (row.engine_arguments, row.adapters) == ({"max-num-seqs": 64}, {"support": "/srv/adapters/support"})
    assert applied(operator, "/pools/night/edit/", queue_cap="8", cooldown_ms="2.5").startswith("/pools/night/?change=")
    row = Pool.objects.get()
    assert (row.queue_cap, row.breaker_cooldown_ms, row.breaker_window_ms) == (8, 2500, 30_000)
    assert "Where the change stands" in page(operator, applied(operator, "/pools/night/edit/", queue_cap="9"))
    assert applied(operator, "/pools/night/delete/").startswith("/pools/?change=")
    assert not Pool.objects.exists()


def test_a_form_sent_as_it_came_changes_nothing(operator: Client) -> None:
    write(lambda unit: MODELS.create(unit, MODEL, {"max_context_tokens": 131_072}))
    arguments = {"max-num-seqs": 64, "gpu-memory-utilization": "0.9", "seed": "7", "enforce-eager": True, "x": '"a"'}
    write(lambda unit: POOLS.create(unit, "night", {"model": MODEL, "engine_arguments": arguments}))
    form = operator.get("/pools/night/edit/").context["form"]
    came = {name: form[name].value() for name in form.fields}
    typed = {name: value for name, value in came.items() if value not in (None, False)}
    answer = operator.post("/pools/night/edit/", {**typed, "step": "review"})
    assert answer.status_code == 200
    assert not answer.context["rehearsal"].shown.objects


def test_what_is_refused_stands_at_its_field_and_what_was_typed_stays(operator: Client) -> None:
    write(lambda unit: MODELS.create(unit, MODEL, {"max_context_tokens": 131_072}))
    text = sent(operator, "/pools-new/", 422, name="Night!", kv_admit_permille="140", queue_cap="many")
    assert 'value="140"' in text
    assert 'value="many"' in text
    assert "Ensure this value is less than or equal to 100" in text
    text = sent(operator, "/pools-new/", 422, name="Night!", minimum_requests="0", adapters="support=here")
    assert "Give 1 to 63 of a-z" in text
    assert "Give a whole number, 1 or more." in text
    assert "give an absolute path on the node" in text
    assert sent(operator, "/pools-new/", 422, name='<script>alert("x")</script>').count("<script>alert") == 0


def test_a_review_that_takes_room_away_names_who_used_it(chat: Pool, own_store: Path, operator: Client) -> None:
    ended = ("headworks_gateway_requests_total", "pool=chat", "tenant=acme", "outcome=ok", "reason=none")
    measured(own_store, {}, {ended: 40.0})
    assert re.search(r"acme sent 4[01] requests there", sent(operator, "/pools/chat/edit/", 200, queue_cap="8"))
    assert "It lets fewer requests in" in sent(operator, "/pools/chat/edit/", 200, max_concurrency="8")
    assert "requests there" not in sent(operator, "/pools/chat/edit/", 200, queue_cap="640")


def test_a_pool_that_is_used_is_not_deleted_and_says_by_what(chat: Pool, operator: Client) -> None:
    answer = operator.get("/pools/chat/delete/")
    assert answer.status_code == 409
    assert "llama-a" in answer.content.decode()


def test_people_of_some_tenants_get_none_of_it(chat: Pool, viewer: Client) -> None:
    User.objects.filter(username="viewer-person").update(tenants=["acme"])
    for path in ("/pools/", "/pools-panel/", "/pools/chat/", "/pools/chat/live/"):
        assert viewer.get(path).status_code == 403


@pytest.mark.parametrize(
    ("before", "after", "less"), [(5, 4, True), (5, 5, False), (5, 6, False), (5, None, False), (None, 5, True)]
)
def test_a_bound_that_was_not_there_is_lowered_by_any(before: int | None, after: int | None, less: bool) -> None:
    assert lowers(before, after) is less


_TEXT = st.text(string.printable.split("\t")[0], max_size=20)
_VALUES = st.one_of(_TEXT, st.integers(-MAX_INTEGER, MAX_INTEGER), st.booleans())


@given(st.dictionaries(st.from_regex(r"[a-z][a-z-]{0,10}", fullmatch=True), _VALUES))
def test_engine_arguments_are_read_as_they_were_written(arguments: dict[str, Any]) -> None:
    field = ArgumentsField(required=False)
    assert field.clean(field.prepare_value(arguments)) == arguments


def test_an_engine_reached_directly_is_among_its_pools_engines(viewer: Client) -> None:
    add_engine("direct", None)
    assert "reached directly" in page(viewer, "/pools/chat/")
