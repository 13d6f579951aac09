"""The page of priority classes: in the order in which they are served, with how each fares, and its forms."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from controlplane.core.changes import UnitOfWork
from controlplane.telemetry.receiver import store_path
from controlplane.tenants import services as tenants
from controlplane.tenants.models import PriorityClass
from controlplane.tenants.services import PRIORITY_CLASSES
from tests.web.asking import page
from tests.web.conftest import digest_of, write
from tests.web.traffic import measured

pytestmark = pytest.mark.django_db
CLASSES = "/priority-classes/"
FORM = {
    "rank": "50", "ageing_ms": "1.5", "queue_ttl_ms": "", "shed_order": "5", "kv_ceiling_permille": "80",
    "ttft_slo_ms": "", "tpot_slo_ms": "", "e2e_slo_ms": "", "objective_permille": "",
}  # fmt: skip


@pytest.fixture(autouse=True)
def own_store(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path
    return store_path()


@pytest.fixture
def two() -> None:
    """Batches, which give way, and what people wait for."""

    def make(unit: UnitOfWork) -> None:
        PRIORITY_CLASSES.create(unit, "batch", {"rank": 90, "shed_order": 9, "kv_ceiling_permille": 700})
        PRIORITY_CLASSES.create(unit, "interactive", {"rank": 10, "ttft_slo_ms": 400})
        tenants.create(unit, "acme", {"default_priority_class": "interactive"})

    write(make)


def row_of(text: str, name: str) -> str:
    start = text.index(f'id="class-{name}"')
    return text[start : text.index("</tr>", start)]


def applied(client: Client, path: str, typed: dict[str, str]) -> None:
    reviewed = client.post(path, {**typed, "step": "review"})
    assert reviewed.status_code == 200, reviewed.content.decode()
    digest = digest_of(reviewed.content.decode())
    answer = client.post(path, {**typed, "step": "apply", "digest": digest, "reason": "a test"})
    assert answer.status_code == 302, answer.content.decode()
    assert answer["Location"].startswith(f"{CLASSES}?change=")


def test_who_is_served_first_stands_first_and_says_who_gives_way(two: None, own_store: Path, viewer: Client) -> None:
    queue, ended = "headworks_gateway_queue_seconds", "headworks_gateway_requests_total"
    measured(
        own_store,
        {},
        {
            (ended, "priority_class=batch", "outcome=ok", "reason=none"): 3600.0,
            (ended, "priority_class=batch", "outcome=refused", "reason=shed"): 900.0,
            (f"{queue}_sum", "priority_class=batch"): 7200.0,
        },
    )
    text = page(viewer, CLASSES)
    assert text.index('id="class-interactive"') < text.index('id="class-batch"')
    batch, interactive = row_of(text, "batch"), row_of(text, "interactive")
    assert "gives way to interactive" in batch
    assert "gives way to none" in interactive
    assert "fills 70 % of KV cache" in batch
    assert "TTFT 400 ms" in interactive
    assert "default of 1 tenant" in interactive
    # Requests a second, how many waited at once, shed a minute.
    for value in (">2.5</td>", ">4.0</td>", ">30.0</td>"):
        assert value in batch
    assert "/edit/" not in text


def test_a_class_of_which_none_got_what_was_promised_has_no_goodput(two: None, own_store: Path, viewer: Client) -> None:
    measured(own_store, {}, {("headworks_gateway_slo_requests_total", "priority_class=batch", "outcome=missed"): 90.0})
    text = page(viewer, CLASSES)
    assert ">0.0 %</td>" in row_of(text, "batch")
    assert ">–</td>" in row_of(text, "interactive")


def test_a_class_is_made_changed_and_deleted(operator: Client) -> None:
    applied(operator, "/priority-classes-new/", {**FORM, "name": "night"})
    row = PriorityClass.objects.get()
    assert (row.rank, row.ageing_ms, row.queue_ttl_ms, row.kv_ceiling_permille) == (50, 1500, None, 800)
    applied(operator, "/priority-classes/night/edit/", {**FORM, "queue_ttl_ms": "60", "objective_permille": "99.5"})
    row = PriorityClass.objects.get()
    assert (row.queue_ttl_ms, row.objective_permille) == (60_000, 995)
    applied(operator, "/priority-classes/night/delete/", {})
    assert not PriorityClass.objects.exists()


def test_a_review_names_who_sent_requests_of_the_class(own_store: Path, operator: Client) -> None:
    write(lambda unit: PRIORITY_CLASSES.create(unit, "night", {"rank": 90}))
    of_night = ("tenant=acme", "priority_class=night", "outcome=ok", "reason=none")
    of_other = ("tenant=beta", "priority_class=day", "outcome=ok", "reason=none")
    ended = "headworks_gateway_requests_total"
    measured(own_store, {}, {(ended, *of_night): 40.0, (ended, *of_other): 40.0})
    for answer in (
        operator.get("/priority-classes/night/delete/"),
        operator.post("/priority-classes/night/edit/", {**FORM, "step": "review"}),
    ):
        assert re.search(r"In the last hour acme sent 4[01] requests of this class\.", answer.content.decode())


def test_a_class_that_a_tenant_uses_is_not_deleted(two: None, operator: Client) -> None:
    answer = operator.get("/priority-classes/interactive/delete/")
    assert answer.status_code == 409
    assert "acme" in answer.content.decode()


def test_what_cannot_be_is_refused_at_its_field(operator: Client) -> None:
    answer = operator.post(
        "/priority-classes-new/", {**FORM, "name": "x", "kv_ceiling_permille": "0", "step": "review"}
    )
    assert answer.status_code == 422
    assert answer.context["form"].errors["kv_ceiling_permille"]


def test_the_list_asks_no_more_where_there_are_many(viewer: Client) -> None:
    def make(unit: UnitOfWork) -> None:
        for number in range(30):
            PRIORITY_CLASSES.create(unit, f"c-{number}", {"rank": number})
            tenants.create(unit, f"t-{number}", {"default_priority_class": f"c-{number}"})

    write(make)
    with CaptureQueriesContext(connection) as queries:
        page(viewer, CLASSES)
    assert len(queries) <= 10, [each["sql"][:120] for each in queries]


def test_without_a_class_it_says_what_one_is_for(viewer: Client) -> None:
    assert "No priority class yet." in page(viewer, CLASSES)
