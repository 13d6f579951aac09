"""The page of repairs: what is being done about faults, and what people can do about that."""

from __future__ import annotations

from django.test import Client
from django.utils import timezone

from controlplane.core.models import AuditEntry
from controlplane.remediation import services
from controlplane.remediation.models import RemediationPolicy, State
from tests.web.conftest import digest_of
from tests.web.hardware import node
from tests.web.repairing import repair_of


def page(client: Client) -> str:
    answer = client.get("/repairs/")
    assert answer.status_code == 200
    return answer.content.decode()


def confirm(client: Client, address: str) -> None:
    asked = client.get(address)
    form = {"step": "apply", "reason": "seen on site", "digest": digest_of(asked.content.decode())}
    assert client.post(address, form).status_code == 302


def test_without_any_it_says_what_would_show(viewer: Client) -> None:
    shown = page(viewer)
    assert "No fault of the hardware has asked for a repair" in shown
    assert "The program observes" in shown


def test_it_shows_how_far_a_repair_is_and_offers_what_the_role_may(viewer: Client, operator: Client) -> None:
    node("rack-1")
    row = repair_of("rack-1", State.DRAINING, said="waits: drain llama-a")
    for part in ("draining", "waits: drain llama-a", "XID 95", "GPU-3", "Reset a GPU"):
        assert part in page(viewer)
    address = f"/repairs/{row.pk}/cancel/"
    assert address not in page(viewer)
    assert address in page(operator)


def test_an_operator_cancels_one_and_the_audit_has_it(operator: Client) -> None:
    node("rack-1")
    row = repair_of("rack-1", State.HELD)
    assert "<del>held</del>" in operator.get(f"/repairs/{row.pk}/cancel/").content.decode()
    confirm(operator, f"/repairs/{row.pk}/cancel/")
    assert services.get(row.pk).state == State.CANCELLED
    entry = AuditEntry.objects.get(noun="remediation")
    assert (entry.key, entry.reason) == (str(row.pk), "seen on site")


def test_what_failed_is_tried_again_or_cancelled(operator: Client) -> None:
    node("rack-1")
    row = repair_of("rack-1", State.FAILED)
    for what in ("cancel", "begin"):
        assert f"/repairs/{row.pk}/{what}/" in page(operator)
    confirm(operator, f"/repairs/{row.pk}/cancel/")
    assert services.get(row.pk).state == State.CANCELLED


def test_what_nodes_tell_is_shown_as_text(operator: Client) -> None:
    hostile = "<script>alert(1)</script>"
    row = repair_of("rack-1", State.FAILED, gpu=hostile, cause=hostile, said=hostile)
    for shown in (page(operator), operator.get(f"/repairs/{row.pk}/cancel/").content.decode()):
        assert hostile not in shown


def test_an_operator_begins_what_was_only_observed(operator: Client) -> None:
    node("rack-1", engines=["llama-a"])
    row = repair_of("rack-1")
    # Whom it takes capacity from.
    said = operator.get(f"/repairs/{row.pk}/begin/").content.decode()
    assert "has no other engine that takes requests" in said
    confirm(operator, f"/repairs/{row.pk}/begin/")
    assert services.get(row.pk).state == State.HELD


def test_an_admin_has_it_act_and_an_operator_resets_its_breaker(admin: Client, operator: Client) -> None:
    confirm(admin, "/repairs-mode/act/")
    assert services.policy().mode == "act"
    assert "Observe only" in page(admin)
    RemediationPolicy.objects.update(tripped_at=timezone.now(), tripped_because="9 other nodes")
    assert "9 other nodes" in page(operator)
    confirm(operator, "/repairs-breaker/reset/")
    assert services.policy().tripped_at is None
    assert admin.get("/repairs-mode/explode/").status_code == 404
