"""The incidents' pages: what fires first, the time line, the end by hand, and the cordon policy."""

from __future__ import annotations

import re
import uuid
from datetime import timedelta
from functools import partial
from typing import get_args, get_type_hints

import pytest
from django.db import transaction
from django.template.loader import render_to_string
from django.test import Client
from django.utils import timezone
from django.utils.html import escape

from controlplane.alerts import health
from controlplane.alerts.models import Delivery, DeliveryState, Incident, IncidentState, Receiver
from controlplane.alerts.services import deliveries, incident_acts, incidents, policy
from controlplane.configs import publisher
from controlplane.core.models import AuditEntry
from controlplane.fleet.services import NODES
from controlplane.web import labels
from controlplane.web.forms.common import PolicyForm
from controlplane.web.shown import incidents as pages
from tests.web.conftest import digest_of, write
from tests.web.hardware import fault, node, receiver

MARKUP = "<script>alert(1)</script>"


def resolve(incident: Incident) -> None:
    with transaction.atomic():
        incident_acts.end(incident, timezone.now(), "over")


def titles(page: str) -> list[str]:
    return re.findall(r'<td class="title words"><a [^>]*>([^<]*)</a>', page)


def test_what_fires_comes_first_the_gravest_before_the_newest(viewer: Client) -> None:
    fault("rack-1", "old and grave", ago_seconds=600)
    fault("rack-2", "new and mild", severity="warning")
    resolve(fault("rack-3", "over"))
    page = viewer.get("/incidents/").content.decode()
    assert titles(page) == ["rack-1: old and grave", "rack-2: new and mild", "rack-3: over"]
    assert "10 min" in page
    assert re.search(r'data-firing><span data-firing-count>2</span> <span class="visually-hidden">firing<', page)


def test_what_is_over_does_not_stand_below_what_fires(viewer: Client) -> None:
    assert "Firing</h2>" not in viewer.get("/incidents/").content.decode()
    fault("rack-1", "fires")
    resolve(fault("rack-2", "over"))
    firing, _, resolved = viewer.get("/incidents/").content.decode().partition('id="resolved"')
    assert titles(firing) == ["rack-1: fires"]
    assert "<h2>Firing</h2>" in firing
    assert titles(resolved) == ["rack-2: over"]
    assert "<h2>Resolved</h2>" in resolved
    page = viewer.get("/incidents/?state=resolved").content.decode()
    assert "Firing</h2>" not in page


def test_of_more_than_are_shown_the_gravest_are(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "FIRING_SHOWN", 2)
    fault("rack-1", "old and grave", ago_seconds=600)
    for severity in ("info", "warning"):
        fault("rack-2", severity, severity=severity)
    page = viewer.get("/incidents/").content.decode()
    assert titles(page) == ["rack-1: old and grave", "rack-2: warning"]
    assert "and 1 more that fires" in page


def test_a_quiet_fleet_has_no_count_in_the_header(viewer: Client) -> None:
    assert "data-firing hidden>" in viewer.get("/incidents/").content.decode()


def test_they_are_chosen_by_state_and_node(viewer: Client) -> None:
    node("rack-1")
    fault("rack-1", "here")
    resolve(fault("rack-1", "over"))
    fault("rack-2", "there")
    assert titles(viewer.get("/incidents/?state=firing&node=rack-1").content.decode()) == ["rack-1: here"]
    assert titles(viewer.get("/incidents/?state=resolved").content.decode()) == ["rack-1: over"]
    for path in ("/incidents/?node=rack-9", "/incidents/?node=a%00b"):
        page = viewer.get(path).content.decode()
        assert "No incident is like that." in page
    # What cannot be is no filter.
    assert len(titles(viewer.get("/incidents/?state=x&before=y").content.decode())) == 3


def test_resolved_ones_are_paged(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "RESOLVED_PER_PAGE", 2)
    fault("rack-9", "firing")
    for number in range(5):
        resolve(fault(f"rack-{number}", "over"))
    seen, path = [], "/incidents/"
    while path:
        page = viewer.get(path).content.decode()
        seen += titles(page)
        following = re.search(r'href="(/incidents/\?[^"]*before=\d+)"', page)
        path = following[1] if following else ""
    assert seen == ["rack-9: firing", *(f"rack-{number}: over" for number in (4, 3, 2, 1, 0))]


def test_more_that_fire_than_a_page_holds_are_counted(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "FIRING_SHOWN", 2)
    for number in range(5):
        fault(f"rack-{number}")
    page = viewer.get("/incidents/").content.decode()
    assert len(titles(page)) == 2
    assert "and 3 more that fire" in page


def test_an_empty_list_says_what_to_do_next(viewer: Client) -> None:
    page = viewer.get("/incidents/").content.decode()
    assert "No incident yet." in page
    assert 'href="/receivers/"' in page
    assert "No receiver is on: make one or switch one on" in page


def test_an_empty_list_knows_the_receivers_that_are_on(viewer: Client) -> None:
    receiver("oncall")
    page = viewer.get("/incidents/").content.decode()
    assert "1 receiver is told of it." in page
    assert "No receiver is on" not in page
    Receiver.objects.update(enabled=False)
    assert "No receiver is on" in viewer.get("/incidents/").content.decode()


@pytest.mark.parametrize(
    ("language", "says"),
    [
        (
            "en",
            [
                "Description</span> XID 79 &lt;b&gt;",
                "Verdict</span> hardware fault",
                "Runbook</span> here",
                "rack</span> warning",
            ],
        ),
        (
            "tr",
            [
                "Açıklama</span> XID 79 &lt;b&gt;",
                "Değerlendirme</span> donanım arızası",
                "El kitabı</span> here",
                "rack</span> warning",
            ],
        ),
    ],
)
def test_annotations_that_are_known_are_said_in_words(language: str, says: list[str], viewer: Client) -> None:
    incident = fault("rack-1")
    incident.annotations = {
        "description": "XID 79 <b>", "verdict": "hardware_fault", "runbook_url": "here", "rack": "warning",
    }  # fmt: skip
    incident.save()
    page = viewer.get(f"/incidents/{incident.pk}/", headers={"accept-language": language}).content.decode()
    for text in says:
        assert text in page


def test_every_verdict_that_opens_an_incident_has_words() -> None:
    reasons = get_args(get_type_hints(health._opens)["reason"])
    assert set(labels.VERDICTS) == set(reasons)


@pytest.mark.parametrize(
    ("states", "says"),
    [
        ([], "nobody"),
        ([DeliveryState.DELIVERED, DeliveryState.DELIVERED], "delivered.*2 of 2"),
        ([DeliveryState.DELIVERED, DeliveryState.WAITING], "waiting.*1 of 2"),
        ([DeliveryState.FAILED, DeliveryState.WAITING], "failed.*0 of 2"),
    ],
)
def test_a_line_says_who_was_told(states: list[DeliveryState], says: str, viewer: Client) -> None:
    for number in range(len(states)):
        receiver(f"oncall-{number}")
    incident = fault("rack-1")
    for row, state in zip(incident.deliveries.order_by("receiver"), states, strict=True):
        row.state = state
        row.save()
    page = viewer.get("/incidents/").content.decode()
    assert re.search(says, page[page.index('class="told"') : page.index("</tbody>")], re.DOTALL)


def test_the_time_line_shows_when_what_and_by_which_revision(viewer: Client) -> None:
    node("rack-1")
    publisher.publish()
    incident = fault("rack-1", MARKUP, ago_seconds=100)
    with transaction.atomic():
        details = {"revision": 1}
        incidents.note(incident, "cordoned", MARKUP, incident.started_at + timedelta(milliseconds=400), details)
    page = viewer.get(f"/incidents/{incident.pk}/").content.decode()
    line = page[page.index('class="kind-cordoned"') :]
    assert "+0.4 s" in line
    assert 'href="/revisions/1/"' in line
    assert escape(MARKUP) in line
    assert MARKUP not in page
    assert 'alertname="GpuXid"' in page


def test_a_cordon_by_a_person_leads_to_its_revision_once_that_is_published(operator: Client) -> None:
    node("rack-1")
    incident = fault("rack-1")
    write(lambda unit: NODES.cordon(unit, "rack-1"))
    path = f"/incidents/{incident.pk}/"
    assert "/revisions/" not in _time_line(operator.get(path).content.decode())
    revision = publisher.publish()
    assert revision is not None
    assert f"/revisions/{revision.number}/" in _time_line(operator.get(path).content.decode())


def _time_line(page: str) -> str:
    return page[page.index('<ol class="timeline">') : page.index("</ol>")]


def test_it_is_resolved_by_hand_after_a_review(operator: Client) -> None:
    incident = fault("rack-1")
    path = f"/incidents/{incident.pk}/resolve/"
    page = operator.get(path).content.decode()
    assert "A cordoned node stays cordoned" in page
    assert "<ins>resolved</ins>" in page
    answer = operator.post(path, {"step": "apply", "digest": digest_of(page), "reason": "board swapped"})
    assert answer["Location"] == f"/incidents/{incident.pk}/"
    incident.refresh_from_db()
    assert incident.state == IncidentState.RESOLVED
    page = operator.get(f"/incidents/{incident.pk}/").content.decode()
    assert "board swapped" in _time_line(page)
    assert path not in page
    assert AuditEntry.objects.latest("pk").reason == "board swapped"


def test_a_message_that_failed_is_sent_again(operator: Client) -> None:
    receiver("oncall")
    incident = fault("rack-1")
    incident.deliveries.update(state=DeliveryState.FAILED, attempts=7, last_error="rejected: answered 401")
    page = operator.get(f"/incidents/{incident.pk}/").content.decode()
    assert "rejected: answered 401" in page
    path = f"/deliveries/{incident.deliveries.get().pk}/resend/"
    assert path in page
    page = operator.get(path).content.decode()
    assert (
        operator.post(path, {"step": "apply", "digest": digest_of(page), "reason": "token mended"}).status_code == 302
    )
    assert deliveries.get(incident.deliveries.get().pk).state == DeliveryState.WAITING
    assert path not in operator.get(f"/incidents/{incident.pk}/").content.decode()


def test_a_message_that_did_not_fail_is_not_sent_again(operator: Client) -> None:
    receiver("oncall")
    waiting: Delivery = fault("rack-1").deliveries.get()
    assert operator.get(f"/deliveries/{waiting.pk}/resend/").status_code == 409
    assert operator.get(f"/deliveries/{uuid.uuid4()}/resend/").status_code == 404


def test_the_address_that_messages_carry_leads_to_the_page(viewer: Client) -> None:
    # Without a slash, as in `generatorURL`.
    incident = fault("rack-1")
    answer = viewer.get(f"/incidents/{incident.pk}", follow=True)
    assert "XID 79 on GPU 3" in answer.content.decode()


def test_the_policy_is_shown_to_all_and_off_at_first(viewer: Client, admin: Client) -> None:
    page = viewer.get("/incidents/").content.decode()
    assert "Nothing is cordoned by itself" in page
    assert "/cordon-policy/edit/" not in page
    assert "/cordon-policy/edit/" in admin.get("/incidents/").content.decode()


def test_the_policy_is_typed_in_percent_and_seconds_and_reviewed(admin: Client) -> None:
    path = "/cordon-policy/edit/"
    assert 'name="max_nodes_permille" value="20"' in admin.get(path).content.decode()
    fields = {"enabled": "on", "max_nodes_permille": "12.5", "min_nodes": "2", "window_ms": "90"}
    page = admin.post(path, {**fields, "step": "review"}).content.decode()
    assert "From now on a critical hardware event cordons its node by itself." in page
    assert not policy.get().enabled
    # The REST call that does the same has the service's units.
    assert "&quot;max_nodes_permille&quot;: 125" in page
    answer = admin.post(path, {**fields, "step": "apply", "digest": digest_of(page), "reason": "tried for a week"})
    assert answer["Location"] == "/incidents/"
    expected = {"enabled": True, "max_nodes_permille": 125, "min_nodes": 2, "window_ms": 90_000}
    assert policy.describe(policy.get()) == expected
    page = admin.get("/incidents/").content.decode()
    assert "12.5 %" in page
    assert "cordons its node by itself, within this limit" in page


def test_a_form_of_the_policy_that_is_sent_as_it_came_changes_nothing(admin: Client) -> None:
    for window_ms in (1_500, 3_600_001, policy.WINDOW_MAX_MS - 1):
        write(partial(policy.update, fields={"window_ms": window_ms}))
        typed = admin.get("/cordon-policy/edit/").context["form"]["window_ms"].value()
        assert PolicyForm.base_fields["window_ms"].clean(typed) == window_ms
    write(partial(policy.update, fields={"window_ms": 1_500}))
    assert "<dd>1.5 s</dd>" in admin.get("/incidents/").content.decode()


@pytest.mark.parametrize(
    ("field", "typed"), [("max_nodes_permille", "101"), ("min_nodes", "many"), ("window_ms", "0"), ("window_ms", "")]
)
def test_a_policy_that_cannot_be_is_refused_at_its_field(field: str, typed: str, admin: Client) -> None:
    fields = {"max_nodes_permille": "20", "min_nodes": "1", "window_ms": "300", field: typed, "step": "review"}
    answer = admin.post("/cordon-policy/edit/", fields)
    assert answer.status_code == 422
    page = answer.content.decode()
    block = page[page.index(f'for="id_{field}"') :]
    assert 'class="errorlist"' in block[: block.index("</div>")]


def test_pools_and_tenants_of_the_evidence_lead_to_their_pages_where_names_can_have_one() -> None:
    concerned = {"pools": ["chat", "<b>/x"], "tenants": ["acme", "a/b"], "tenants_error": None}
    html = render_to_string("web/parts/evidence.html", {"concerned": concerned, "charts": []})
    assert re.findall(r'<a href="([^"]*)"', html) == ["/pools/chat/", "/tenants/acme/"]
    assert "&lt;b&gt;/x" in html
