"""Mail and Apprise through the child process: real servers, and addresses that the interpreter itself refuses."""

from __future__ import annotations

import json
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from apprise.plugins import N_MGR

from controlplane.alerts.delivery_plan import Outcome, Reason
from controlplane.alerts.receivers import child
from controlplane.alerts.receivers.contract import Job
from controlplane.alerts.receivers.registry import CHANNELS
from tests.controlplane.alerts.mailing import MailServer, mail_server
from tests.controlplane.alerts.receivers.made import NOW, alert, message, target
from tests.controlplane.alerts.receiving import ALLOWED, HANG, Answer, on_call
from tests.gateway.certificates import OwnCertificate
from tests.services import free_port


@pytest.fixture(autouse=True)
def _loopback_is_allowed(monkeypatch):
    monkeypatch.setenv("HEADWORKS_WEBHOOK_ALLOWED_NETWORKS", ALLOWED)


def run(kind: str, **where: Any) -> Outcome:
    job = CHANNELS[kind].plan(message(), target(kind, **where), NOW)
    assert isinstance(job, Job)
    return child.run(job)


def told(url: str) -> Outcome:
    return run("apprise", secret=url)


@contextmanager
def mailing(
    monkeypatch, tls: ssl.SSLContext | None = None, security: str = "none", **replies: str
) -> Iterator[MailServer]:
    with mail_server(tls, **replies) as server:
        for name, value in {"HOST": "127.0.0.1", "PORT": str(server.port), "FROM": "hw@example.com"}.items():
            monkeypatch.setenv(f"HEADWORKS_SMTP_{name}", value)
        monkeypatch.setenv("HEADWORKS_SMTP_SECURITY", security)
        yield server


def mailed() -> Outcome:
    return run("email", to=["a@example.com", "b@example.com"])


def test_a_mail_reaches_who_it_is_for(monkeypatch):
    with mailing(monkeypatch) as server:
        assert mailed().reason is Reason.TAKEN
    (mail,) = server.got
    assert (mail.sender, mail.to, mail.user) == ("hw@example.com", ["a@example.com", "b@example.com"], "")
    assert mail.message["From"] == "hw@example.com"
    assert mail.message["Subject"] == "[Headworks] XID 79 on GPU 3"
    assert mail.message["Message-ID"] == "<headworks-0123@hw.example>"


def test_a_server_that_wants_tls_and_a_log_in_gets_both(monkeypatch, tmp_path: Path):
    certificate = OwnCertificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.chain, certificate.key)
    monkeypatch.setenv("HEADWORKS_SMTP_USER", "hw")
    monkeypatch.setenv("HEADWORKS_SMTP_PASSWORD", "pw-123456")
    with mailing(monkeypatch, context, "starttls") as server:
        # Whose certificate nobody vouches for.
        assert mailed().reason is Reason.TLS
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.chain))
        assert mailed().reason is Reason.TAKEN
    assert [(mail.secure, mail.user) for mail in server.got] == [(True, "hw")]


@pytest.mark.parametrize(
    ("replies", "reason"),
    [
        ({"RCPT": "550 no such user"}, Reason.REJECTED),
        ({"MAIL": "451 try later"}, Reason.BUSY),
        ({"DATA": "554 no such mail"}, Reason.INVALID),
    ],
)
def test_a_mail_servers_reply_says_whether_to_try_again(monkeypatch, replies, reason):
    with mailing(monkeypatch, **replies):
        outcome = mailed()
    (reply,) = replies.values()
    assert (outcome.reason, str(outcome.status), outcome.said) == (reason, reply[:3], reply[4:])


def test_a_server_without_tls_is_not_spoken_to_in_clear(monkeypatch):
    with mailing(monkeypatch, security="starttls") as server:
        assert mailed().reason is Reason.TLS
    assert not server.got


def test_without_a_mail_server_the_outcome_says_what_to_set():
    outcome = mailed()
    assert (outcome.reason, outcome.text) == (
        Reason.NOT_SET_UP,
        "set HEADWORKS_SMTP_HOST and HEADWORKS_SMTP_FROM first",
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::ffff:127.0.0.1", "169.254.169.254"])
def test_a_mail_server_at_a_forbidden_address_is_not_connected_to(monkeypatch, host):
    with mailing(monkeypatch) as server:
        monkeypatch.setenv("HEADWORKS_WEBHOOK_ALLOWED_NETWORKS", "")
        monkeypatch.setenv("HEADWORKS_SMTP_HOST", host)
        assert mailed().reason is Reason.ADDRESS_REFUSED
    assert not server.got


def test_apprise_tells_a_service():
    with on_call() as receiver:
        assert told(f"json://127.0.0.1:{receiver.port}/x").reason is Reason.TAKEN
    body = json.loads(receiver.got[0].body)
    assert (body["title"], body["type"]) == ("[CRITICAL] XID 79 on GPU 3", "failure")


@pytest.mark.parametrize(("mode", "most"), [("", 32_768), ("?overflow=split", 32_768)])
def test_what_is_too_long_for_a_service_is_cut_and_not_refused(mode, most):
    storm = [alert(summary=f"{number} {'x' * 2000}") for number in range(50)]
    with on_call() as receiver:
        where = target("apprise", secret=f"json://127.0.0.1:{receiver.port}/x{mode}")
        job = CHANNELS["apprise"].plan(message("changed", *storm), where, NOW)
        assert isinstance(job, Job)
        assert child.run(job).reason is Reason.TAKEN
    assert max(len(json.loads(got.body)["message"]) for got in receiver.got) <= most
    assert (len(receiver.got) > 1) == bool(mode)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(500, body=b"broken"), Reason.SERVER_ERROR),
        (Answer(429, (("Retry-After", "17"),)), Reason.BUSY),
        (Answer(401, body=b"who are you"), Reason.REJECTED),
    ],
)
def test_what_a_service_answers_apprise_says_whether_to_try_again(answer, reason):
    with on_call(answer) as receiver:
        outcome = told(f"json://127.0.0.1:{receiver.port}/x")
    assert (outcome.reason, outcome.status, outcome.said) == (reason, answer.status, answer.body.decode())
    assert (outcome.retry_after is not None) == (reason is Reason.BUSY)


def test_apprise_follows_no_redirect():
    with on_call() as elsewhere, on_call(Answer(302, (("Location", elsewhere.url),))) as receiver:
        assert told(f"json://127.0.0.1:{receiver.port}/x").reason is Reason.REDIRECTED
    assert not elsewhere.got


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "169.254.169.254"])
def test_apprise_connects_to_no_forbidden_address(monkeypatch, host):
    monkeypatch.setenv("HEADWORKS_WEBHOOK_ALLOWED_NETWORKS", "")
    with on_call() as receiver:
        assert told(f"json://{host}:{receiver.port}/x").reason is Reason.ADDRESS_REFUSED
    assert not receiver.got


def test_apprise_sends_no_datagram_either(monkeypatch):
    monkeypatch.setenv("HEADWORKS_WEBHOOK_ALLOWED_NETWORKS", "")
    assert told("rsyslog://127.0.0.1").reason is Reason.ADDRESS_REFUSED


def test_a_url_that_apprise_cannot_read_is_a_persons_to_mend():
    assert told("nosuchservice://token").reason is Reason.REJECTED


def test_a_service_that_hangs_is_given_up_in_time_and_no_process_is_left(monkeypatch):
    monkeypatch.setenv("HEADWORKS_WEBHOOK_TIMEOUT_SECONDS", "3")
    with on_call(HANG) as receiver:
        began = time.monotonic()
        assert told(f"json://127.0.0.1:{receiver.port}/x").reason is Reason.TIMED_OUT
        assert time.monotonic() - began < 8


def test_a_port_without_a_service_is_unreachable():
    assert told(f"json://127.0.0.1:{free_port()}/x").reason is Reason.UNREACHABLE


_TRIES = """
import os, subprocess, sys
from controlplane.alerts.receivers.guard import Guard
Guard([], []).hold()
try:
    {}
except PermissionError:
    print("refused")
"""


@pytest.mark.parametrize(
    "act",
    [
        "open('/etc/passwd')",
        "open(sys.prefix + '/x', 'w')",
        "subprocess.run(['true'])",
        "__import__('os').system('true')",
    ],
)
def test_what_runs_there_reads_no_file_of_the_machine_and_starts_nothing(act):
    tried = subprocess.run([*child._ARGV[:3], "-c", _TRIES.format(act)], capture_output=True, text=True, check=True)
    assert tried.stdout == "refused\n"


def test_of_the_environment_no_secret_and_no_proxy_goes_along(monkeypatch):
    monkeypatch.setenv("HEADWORKS_FIELD_KEY", "secret")
    monkeypatch.setenv("https_proxy", "http://proxy.example")
    assert not {"HEADWORKS_FIELD_KEY", "https_proxy"} & child._environment().keys()


def test_no_service_of_the_machine_itself_is_taken():
    modules = {"dbus", "glib", "gnome", "macosx", "syslog", "windows"}
    local = {schema for schema in N_MGR.schemas() if N_MGR[schema].__module__.rpartition(".")[2] in modules}
    assert {"dbus", "gio", "syslog"} <= local
    assert {schema for schema in local if not CHANNELS["apprise"].secret_problem(f"{schema}://x", ())} == set()


@pytest.mark.parametrize(
    ("url", "refused"),
    [
        ("discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js", False),
        ("syslog://", True),
        ("file:///etc/passwd", True),
        ("no url", True),
        ("https://a b", True),
        ("json://" + "x" * 2000, True),
    ],
)
def test_an_apprise_url_is_a_services(url, refused):
    assert bool(CHANNELS["apprise"].secret_problem(url, ())) is refused
