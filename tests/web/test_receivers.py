"""The receivers' pages: made with a secret that is shown once, tried, switched off and on."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone
from django.utils.html import escape

from controlplane.alerts.delivery_plan import Outcome, Reason
from controlplane.alerts.models import Receiver, Severity
from controlplane.alerts.services import attempts
from controlplane.alerts.services.receivers import RECEIVERS, secret_of
from controlplane.core.sealed import unseal
from controlplane.web.views import receivers as views
from tests.web.conftest import digest_of
from tests.web.hardware import fault, receiver

FORM, OTHER_FORM = "7d2f2f0e-7a3c-4b53-9f0a-7a2b9e1c0d11", "0b0d5f3e-52a1-4c0e-8a55-0c7f2f9a6e22"
NEW_PATH = "/receivers-new/"
NEW = {
    "form_id": FORM, "name": "oncall", "url": "https://oncall.example/hook", "min_severity": "critical",
    "send_resolved": "on",
    "rate_limit_per_minute": "0", "reason": "night shift",
}  # fmt: skip


def secret_in(page: str) -> str:
    found = re.search(r'id="secret"[^>]*>(\w+-[\w-]+)<', page)
    assert found, page
    return found[1]


def test_a_new_one_has_a_secret_that_is_shown_once(admin: Client) -> None:
    page = admin.post(f"{NEW_PATH}?kind=webhook", NEW).content.decode()
    row = RECEIVERS.get("oncall")
    assert secret_in(page) == secret_of(row)
    assert "Only its hash is kept" not in page
    assert (row.url, row.min_severity, row.send_resolved) == (NEW["url"], Severity.CRITICAL, True)
    again = admin.post(f"{NEW_PATH}?kind=webhook", NEW)
    assert again.status_code == 409
    assert "This was made already" in again.content.decode()
    for path in ("/receivers/", "/receivers/oncall/", "/receivers/oncall/edit/", "/receivers/oncall/test/"):
        assert str(secret_of(row)) not in admin.get(path).content.decode()


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
    answer = admin.post(f"{NEW_PATH}?kind=webhook", {**NEW, field: typed})
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
    assert "/receivers/oncall/edit/" not in page


def test_an_address_breaks_after_a_step_of_its_path_and_stays_text(viewer: Client) -> None:
    receiver("oncall")
    Receiver.objects.update(url="https://oncall.example/hooks/<b>/")
    page = viewer.get("/receivers/").content.decode()
    assert ">https://oncall.example/<wbr>hooks/<wbr>&lt;b&gt;/</td>" in page


def test_it_is_changed_after_a_review(admin: Client) -> None:
    receiver("oncall")
    path = "/receivers/oncall/edit/"
    fields = {"url": "https://other.example/hook", "min_severity": "info", "rate_limit_per_minute": "30"}
    page = admin.post(path, {**fields, "step": "review"}).content.decode()
    assert "<ins>https://other.example/hook</ins>" in page
    form = {**fields, "step": "apply", "digest": digest_of(page), "reason": "moved"}
    assert admin.post(path, form)["Location"] == "/receivers/"
    row = RECEIVERS.get("oncall")
    assert (row.url, row.min_severity, row.send_resolved) == (fields["url"], Severity.INFO, False)
    assert row.rate_limit_per_minute == 30


def test_an_address_that_is_refused_stays_in_the_form(admin: Client) -> None:
    receiver("oncall")
    fields = {"url": "http://127.0.0.1:9/", "min_severity": "info", "rate_limit_per_minute": "0", "step": "review"}
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
        (Outcome(Reason.REJECTED, "answered 401", said="<i>who?"), '<pre class="said">&lt;i&gt;who?</pre>'),
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


FLOW = "https://flows.example/invoke?sig=secret-signature"
COMMON = {"min_severity": "warning", "send_resolved": "on", "rate_limit_per_minute": "0"}
FORMS = [
    ("pagerduty", {**COMMON, "url": "https://events.eu.pagerduty.com", "secret": "R" * 32}, {}),
    ("slack", {**COMMON, "secret": FLOW}, {}),
    ("teams", {**COMMON, "secret": FLOW}, {}),
    (
        "opsgenie",
        {**COMMON, "url": "https://api.opsgenie.com", "secret": "key-12345678", "teams": "fleet\r\n\r\ngpu "},
        {"teams": ["fleet", "gpu"]},
    ),
    ("email", {**COMMON, "to": "a@example.com\r\nb@example.com"}, {"to": ["a@example.com", "b@example.com"]}),
    ("apprise", {**COMMON, "secret": "json://hooks.example/secret-token"}, {}),
    (
        "alertmanager",
        {**COMMON, "urls": "http://am.example:9093", "user": "", "resend_seconds": "30", "secret": ""},
        {"urls": ["http://am.example:9093"], "user": "", "resend_seconds": 30},
    ),
    (
        "heartbeat",
        {"method": "GET", "interval_seconds": "30", "secret": FLOW},
        {"method": "GET", "interval_seconds": 30},
    ),
]


@pytest.mark.parametrize(("kind", "typed", "stored"), FORMS, ids=[kind for kind, *_ in FORMS])
def test_each_kind_has_its_form(admin: Client, kind: str, typed: dict[str, str], stored: dict[str, object]) -> None:
    path = f"{NEW_PATH}?kind={kind}"
    page = admin.get(path).content.decode()
    assert all(f'name="{field}"' in page for field in typed)
    answer = admin.post(path, {"form_id": FORM, "name": "a", "reason": "why", **typed})
    assert answer.status_code == 302, answer.content.decode()
    row = RECEIVERS.get("a")
    assert (row.kind, row.settings) == (kind, stored)
    assert (unseal(row.sealed_secret) if row.sealed_secret else "") == typed.get("secret", "")
    for shown in ("/receivers/", "/receivers/a/", "/receivers/a/edit/", "/receivers/a/test/"):
        text = admin.get(shown).content.decode()
        assert not typed.get("secret") or typed["secret"] not in text
    # What is not changed in the form is no change.
    again = {**{name: value for name, value in typed.items() if name != "secret"}, "step": "review"}
    assert "<ins>" not in admin.post("/receivers/a/edit/", again).content.decode()


def test_the_kinds_are_offered_first(admin: Client) -> None:
    page = admin.get(NEW_PATH).content.decode()
    assert "?kind=pagerduty" in page
    assert "?kind=pagerduty" in admin.get(f"{NEW_PATH}?kind=pigeon").content.decode()


def test_a_refused_setting_stands_at_its_field_and_no_secret_is_typed_back(admin: Client) -> None:
    typed = {**COMMON, "form_id": FORM, "name": "a", "reason": "why", "secret": "http://169.254.169.254/secret-path"}
    answer = admin.post(f"{NEW_PATH}?kind=slack", typed)
    page = answer.content.decode()
    assert answer.status_code == 422
    assert 'class="errorlist"' in page[page.index('for="id_secret"') :]
    assert "secret-path" not in page


def test_a_given_secret_is_replaced_by_another(admin: Client) -> None:
    admin.post(f"{NEW_PATH}?kind=slack", {**COMMON, "form_id": FORM, "name": "a", "reason": "why", "secret": FLOW})
    path = "/receivers/a/rotate-secret/"
    answer = admin.post(path, {"form_id": OTHER_FORM, "reason": "leaked", "secret": FLOW + "-2"})
    assert answer["Location"] == "/receivers/"
    assert unseal(RECEIVERS.get("a").sealed_secret) == FLOW + "-2"


def test_a_receivers_page_shows_what_failed_and_every_answer_and_sends_it_again(operator: Client) -> None:
    row = receiver("oncall")
    fault("rack-1")
    sent = attempts.claim(row.pk, timezone.now())
    assert sent is not None
    broken = Outcome(Reason.INVALID, "answered 400", status=400, said="<no such> field")
    attempts.settle(sent, broken, timezone.now(), timedelta(milliseconds=37))
    page = operator.get("/receivers/oncall/").content.decode()
    assert "&lt;no such&gt; field" in page
    assert "37 ms" in page
    assert f"/deliveries/{sent.pk}/resend/" in page
    path = "/receivers/oncall/resend-failed/"
    review = operator.get(path).content.decode()
    for shown in (review, operator.get(f"/deliveries/{sent.pk}/resend/").content.decode()):
        heading = shown[shown.index("<h3>") : shown.index("</h3>")]
        assert f"delivery oncall: {escape(row.deliveries.get().incident.title)}" in heading
        assert str(sent.pk) not in heading
    operator.post(path, {"step": "apply", "digest": digest_of(review), "reason": "mended"})
    assert [one.state for one in row.deliveries.all()] == ["waiting"]


def test_one_that_is_left_alone_says_until_when(viewer: Client) -> None:
    receiver("oncall")
    Receiver.objects.update(
        failures_in_a_row=5, open_until=timezone.now() + timedelta(minutes=1), last_error="timed_out: no answer"
    )
    for path in ("/receivers/", "/receivers/oncall/"):
        page = viewer.get(path).content.decode()
        assert "left alone" in page
        assert "timed_out: no answer" in page
