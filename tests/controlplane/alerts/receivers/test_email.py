from __future__ import annotations

import email
import email.policy
from email.message import EmailMessage

import pytest

from controlplane.alerts.delivery_plan import Outcome, Reason
from controlplane.alerts.outgoing import shown
from controlplane.alerts.receivers.contract import Job
from controlplane.alerts.receivers.registry import CHANNELS
from controlplane.core.errors import Refused
from controlplane.core.fields import read
from tests.controlplane.alerts.receivers.made import NOW, alert, message, target

TO = ["a@example.com", "b@example.com"]


def mail(*arguments, **changes) -> EmailMessage:
    job = CHANNELS["email"].plan(message(*arguments, **changes), target("email", to=TO), NOW)
    assert isinstance(job, Job)
    assert (job.kind, job.given["to"]) == ("smtp", TO)
    return email.message_from_string(job.given["mail"], policy=email.policy.default)


def test_an_incident_is_one_thread():
    first, changed, over = mail(), mail("changed", delivery="d-2"), mail("resolved", delivery="d-3")
    assert first["Message-ID"] == "<headworks-0123@hw.example>"
    assert first["In-Reply-To"] is None
    for later, number in ((changed, 2), (over, 3)):
        assert later["In-Reply-To"] == later["References"] == first["Message-ID"]
        assert later["Message-ID"] == f"<d-{number}@hw.example>"
        assert later["Subject"] == f"Re: {first['Subject']}"


def test_an_attempt_that_comes_again_is_the_same_mail():
    assert mail("changed")["Message-ID"] == mail("changed")["Message-ID"]
    assert mail()["Auto-Submitted"] == "auto-generated"


@pytest.mark.parametrize(
    "said",
    ["wrong password pw-123456", "cHctMTIzNDU2", "AUTH PLAIN AGh3AHB3LTEyMzQ1Ng=="],
)
def test_the_mail_servers_password_is_shown_to_nobody_whatever_it_answers(monkeypatch, said):
    monkeypatch.setenv("HEADWORKS_SMTP_USER", "hw")
    monkeypatch.setenv("HEADWORKS_SMTP_PASSWORD", "pw-123456")
    clues = CHANNELS["email"].clues(target("email", to=TO))
    kept = shown(Outcome(Reason.REJECTED, "the mail server replied 535", said=said), clues).said
    assert "[hidden]" in kept
    assert "pw-123456" not in kept
    assert "3LTEyMzQ1Ng" not in kept


def test_it_is_read_as_text_and_as_html():
    text, html = mail("first", alert(summary="<b>&")).iter_parts()
    assert "[CRITICAL] XID 79 on GPU 3" in text.get_content()
    assert "- firing: <b>&" in text.get_content()
    assert "https://hw.example/r" in text.get_content()
    assert "firing: &lt;b&gt;&amp;" in html.get_content()
    assert "<b>" not in html.get_content()


def test_a_title_makes_no_header():
    shown = mail(title="x\r\nBcc: everyone@example.com")
    assert shown["Bcc"] is None
    assert shown["Subject"] == "[Headworks] x Bcc: everyone@example.com"


@pytest.mark.parametrize("to", [[], ["nobody"], ["a@b\r\nBcc: c@d"], ["Ada <a@example.com>"], "a@example.com", None])
def test_who_is_written_to_is_addresses(to):
    with pytest.raises(Refused):
        read(CHANNELS["email"].settings, {"to": to})
