"""The receivers' pages: made with a secret that is shown once, tried, switched off and on."""

from __future__ import annotations

import re
from datetime import datetime

import pytest
from django.test import Client

from controlplane.alerts.delivery_plan import Outcome, Reason
from controlplane.alerts.models import Receiver, Severity
from controlplane.alerts.services.receivers import RECEIVERS, secret_of
from controlplane.web.views import receivers as views
from tests.web.conftest import digest_of
from tests.web.hardware import fault, receiver

FORM, OTHER_FORM = "7d2f2f0e-7a3c-4b53-9f0a-7a2b9e1c0d11", "0b0d5f3e-52a1-4c0e-8a55-0c7f2f9a6e22"
NEW = {
    "form_id": FORM, "name": "oncall", "url": "https://oncall.example/hook", "min_severity": "critical",
    "send_resolved": "on", "reason": "night shift",
}  # fmt: skip


def secret_in(page: str) -> str:
    found = re.search(r'id="secret"[^>]*>(\w+-[\w-]+)<', page)
    assert found, page
    return found[1]


def test_a_new_one_has_a_secret_that_is_shown_once(admin: Client) -> None:
    page = admin.post("/receivers-new/", NEW).content.decode()
    row = RECEIVERS.get("oncall")
    assert secret_in(page) == secret_of(row)
    assert "Only its hash is kept" not in page
    assert (row.url, row.min_severity, row.send_resolved) == (NEW["url"], Severity.CRITICAL, True)
    again = admin.post("/receivers-new/", NEW)
    assert again.status_code == 409
    assert "This was made already" in again.content.decode()
    for path in ("/receivers/", "/receivers/oncall/edit/", "/receivers/oncall/test/"):
        assert secret_of(row) not in admin.get(path).content.decode()


@pytest.mark.parametrize(
    ("field", "typed"),
    [
        ("url", "ftp://oncall.example/"),
        ("url", "https://user:password@oncall.example/"),
        ("url", "http://169.254.169.254/latest/meta-data"),
        ("name", "On Call"),
        ("min_severity", "worst"),
    ],
)
def test_what_cannot_be_is_refused_at_its_field_and_kept(field: str, typed: str, admin: Client) -> None:
    answer = admin.post("/receivers-new/", {**NEW, field: typed})
    assert answer.status_code == 422
    page = answer.content.decode()
    block = page[page.index(f'for="id_{field}"') :]
    assert 'class="errorlist"' in block[: block.index("</div>")]
    assert not Receiver.objects.exists()


def test_an_empty_list_says_what_to_do_next(admin: Client, viewer: Client) -> None:
    assert 'href="/receivers-new/"' in admin.get("/receivers/").content.decode()
    assert "An admin can make one." in viewer.get("/receivers/").content.decode()


def test_the_list_says_what_became_of_the_messages(viewer: Client) -> None:
    receiver("oncall")
    fault("rack-1").deliveries.update(state="failed")
    page = viewer.get("/receivers/").content.decode()
    assert re.search(r"failed.*0 of 1", page[page.index('class="told"') :], re.DOTALL)
    assert "/receivers/oncall/" not in page


def test_an_address_breaks_after_a_step_of_its_path_and_stays_text(viewer: Client) -> None:
    receiver("oncall")
    Receiver.objects.update(url="https://oncall.example/hooks/<b>/")
    page = viewer.get("/receivers/").content.decode()
    assert ">https://oncall.example/<wbr>hooks/<wbr>&lt;b&gt;/</td>" in page


def test_it_is_changed_after_a_review(admin: Client) -> None:
    receiver("oncall")
    path = "/receivers/oncall/edit/"
    fields = {"url": "https://other.example/hook", "min_severity": "info"}
    page = admin.post(path, {**fields, "step": "review"}).content.decode()
    assert "<ins>https://other.example/hook</ins>" in page
    form = {**fields, "step": "apply", "digest": digest_of(page), "reason": "moved"}
    assert admin.post(path, form)["Location"] == "/receivers/"
    row = RECEIVERS.get("oncall")
    assert (row.url, row.min_severity, row.send_resolved) == (fields["url"], Severity.INFO, False)


def test_an_address_that_is_refused_stays_in_the_form(admin: Client) -> None:
    receiver("oncall")
    fields = {"url": "http://127.0.0.1:9/", "min_severity": "info", "step": "review"}
    answer = admin.post("/receivers/oncall/edit/", fields)
    assert answer.status_code == 422
    assert 'value="http://127.0.0.1:9/"' in answer.content.decode()


def test_it_is_switched_off_and_on_again(admin: Client) -> None:
    receiver("oncall")
    path = "/receivers/oncall/switch/"
    for enabled, label in ((False, "Switch off oncall"), (True, "Switch on oncall")):
        page = admin.get(path).content.decode()
        assert label in page
        admin.post(path, {"step": "apply", "digest": digest_of(page), "reason": "maintenance"})
        assert RECEIVERS.get("oncall").enabled is enabled


def test_a_new_secret_takes_the_place_of_the_old_one(admin: Client) -> None:
    old = secret_of(receiver("oncall"))
    page = admin.post("/receivers/oncall/rotate-secret/", {"form_id": OTHER_FORM, "reason": "leaked"}).content.decode()
    assert secret_in(page) == secret_of(RECEIVERS.get("oncall")) != old


@pytest.mark.parametrize(
    ("outcome", "says"),
    [
        (Outcome(Reason.TAKEN, "answered 200 OK"), "The receiver took it: answered 200 OK"),
        (Outcome(Reason.REJECTED, "answered 401 <b>"), "rejected: answered 401 &lt;b&gt;"),
    ],
)
def test_a_test_message_is_sent_by_the_button_alone_and_its_outcome_shown(
    outcome: Outcome, says: str, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []

    def send(row: Receiver, now: datetime) -> Outcome:
        sent.append(row.name)
        return outcome

    receiver("oncall")
    monkeypatch.setattr(views, "send_test", send)
    assert "Send a test message" in admin.get("/receivers/oncall/test/").content.decode()
    assert sent == []
    page = admin.post("/receivers/oncall/test/").content.decode()
    assert sent == ["oncall"]
    assert says in page.replace("</span>\n", "</span> ")
