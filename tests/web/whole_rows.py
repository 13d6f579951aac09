"""Rows of a fleet that has been lived in, made in a process of the site's own before it runs (`whole_site`)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.urls import URLPattern
from django.utils import timezone

from controlplane.alerts.models import Incident
from controlplane.alerts.services import incident_acts
from controlplane.batches.models import Status
from controlplane.configs import publisher
from controlplane.core.changes import SYSTEM, UnitOfWork, unit_of_work
from controlplane.core.models import Role, Target
from controlplane.fleet.services import NODES
from controlplane.remediation.models import State
from controlplane.tenants import services as tenants
from controlplane.tenants.services import PRIORITY_CLASSES
from controlplane.web import urls
from dashboards import urls as dashboard_urls
from dashboards import views
from tests.web import test_access
from tests.web.alerting import silence
from tests.web.batches import batch_of
from tests.web.conftest import acknowledge, new_target, write
from tests.web.hardware import add_engine, fault, gpu_uuid, node
from tests.web.repairing import repair_of
from tests.web.telling import refusal
from wire.problems import Problem

# Wherever a person, an engine or a client may write what they like.
HOSTILE = """<script>alert("1")</script> & 'Müşteri' 顧客 عميل"""
LOST = 3
_PARTS = ("convergence", "_panel", "_evidence")


def fill() -> dict[str, dict[str, str]]:
    """Fill the database of the moment; answers the `pages` and `lists` of a WholeSite."""
    write(lambda unit: tenants.create(unit, "acme", {"tpm_limit": 60_000}))
    parts = test_access.fill("acme")
    add_tenants()
    add_nodes()
    add_trouble()
    tell_decisions()
    for status, done in ((Status.COMPLETED, 1200), (Status.FAILED, 0), (Status.VALIDATING, 0)):
        batch_of("nightly", status=status, completed=done, failed=0, said=HOSTILE if status == "failed" else "")
    publisher.publish()
    answer_as_targets()
    return {"pages": {**_pages(parts), **_dashboards()}, "lists": {**_lists(), **_dashboards()}}


def _pages(parts: dict[str, Any]) -> dict[str, str]:
    """All but what is a part of a page, and loaded by it."""
    whole = {name: path for name, (path, _role) in test_access.PAGES.items() if not name.endswith(_PARTS)}
    return {name: path.format(**parts) for name, path in whole.items()}


def _lists() -> dict[str, str]:
    """What is open to viewers and about nothing in particular."""
    plain = {each.name for each in urls.urlpatterns if isinstance(each, URLPattern) and "<" not in str(each.pattern)}
    open_to_all = {name: path for name, (path, role) in test_access.PAGES.items() if role is Role.VIEWER}
    return {
        name: path.partition("?")[0]
        for name, path in open_to_all.items()
        if name in plain and not name.endswith(_PARTS)
    }


def _dashboards() -> dict[str, str]:
    """The pages with charts; beside them stand addresses that Dash itself asks for, and the stream."""
    own = [each for each in dashboard_urls.urlpatterns if each.callback.__module__ == views.__name__]
    return {f"dashboards-{each.name}": f"/dashboards/{each.pattern}" for each in own}


def add_tenants() -> None:
    def create(unit: UnitOfWork) -> None:
        for rank, name in ((5, "urgent"), (80, "overnight")):
            PRIORITY_CLASSES.create(unit, name, {"rank": rank})
        limits = {"tpm_limit": 2_400_000, "rpm_limit": 600, "max_parallel_requests": 32}
        tenants.create(unit, "search", {**limits, "weight": 4, "default_priority_class": "urgent"})
        tenants.create(unit, "support-bot", {"tpm_limit": 600_000, "daily_token_budget": 20_000_000})
        tenants.create(unit, "nightly", {"tpm_limit": 500_000, "priority_classes": ["overnight"]})
        tenants.create(unit, "trial", {"tpm_limit": 5_000, "blocked": True})
        for label in ("ranking service", HOSTILE[:100]):
            tenants.create_key(unit, "acme", {"label": label})

    write(create)


def add_nodes() -> None:
    """Beside rack-1: one that is well, and one that lost a GPU, is cordoned, and whose engine is down."""
    node("rack-2", engines=["rack-2-vllm"])
    node("rack-3", lost=[LOST])
    row = node("rack-4", engines=["rack-4-vllm"])
    add_engine("rack-4-b", row, state="down", error=f"GET /health: {HOSTILE}")
    for name in ("rack-2", "rack-3", "rack-4"):
        new_target("node", name)
    with unit_of_work(SYSTEM, HOSTILE) as unit:
        NODES.cordon(unit, "rack-3")


def add_trouble() -> None:
    """Incidents in each state, and repairs."""
    fault("rack-3", f"GPU {LOST} is lost: {HOSTILE}", ago_seconds=900)
    seen = fault("rack-4", "rack-4-b is down", severity="warning", ago_seconds=4000)
    over = fault("rack-2", "GPU 5 is at 91 °C", severity="warning", ago_seconds=9000)

    def look_after(unit: UnitOfWork) -> None:
        at = timezone.now()
        incident_acts.acknowledge(unit, seen.pk, at)
        incident_acts.assign(unit, seen.pk, {"assignee": "omar"}, at)
        incident_acts.comment(unit, seen.pk, {"text": HOSTILE}, at)
        silence(unit, "rack-4-tonight", comment=HOSTILE)

    write(look_after)
    with transaction.atomic():
        incident_acts.end(Incident.objects.get(pk=over.pk), timezone.now() - timedelta(seconds=600), "it is cool again")
    repair_of("rack-3", State.ESCALATED, gpu=gpu_uuid("rack-3", LOST), cause="xid 79", said=HOSTILE)


def tell_decisions() -> None:
    """Refusals of several sorts, and one request that was served."""
    for number in range(6):
        refusal(f"search-{number}", tenant="search", priority_class="urgent", pool="chat")
    refusal("unknown", stage="identify", reason="unknown_key", status=401, tenant="", numbers={}, message=HOSTILE)
    served = {"prompt_tokens": 912, "max_tokens": 512, "output_tokens": 388, "queue_ms": 14, "first_byte_ms": 231}
    refusal("served", stage="serve", reason="admitted", status=200, tenant="search", numbers=served, message="")


def answer_as_targets() -> None:
    """All but one run the newest revision; that one refuses it."""
    refusing = new_target("gateway", "edge-2")
    for target in Target.objects.exclude(pk=refusing.pk):
        acknowledge(target)
    acknowledge(refusing, [Problem("/tenants/acme/models", "reference", HOSTILE)])
