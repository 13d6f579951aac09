"""Kind `alertmanager`, its requests, and against the real one."""

from __future__ import annotations

import json
import urllib.request
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from controlplane.alerts.delivery_plan import Reason
from controlplane.alerts.receivers.registry import CHANNELS
from controlplane.alerts.transport import send
from controlplane.core.errors import Refused
from controlplane.core.fields import read
from tests.controlplane.alerts.receivers.made import LABELS, NOW, alert, message, requests, target
from tests.controlplane.alerts.receiving import ALLOWED
from tests.services import Process, free_port, service_binary

CHANNEL = CHANNELS["alertmanager"]


def body(request) -> list[dict[str, Any]]:
    document: list[dict[str, Any]] = json.loads(request.body)
    return document


def test_all_of_a_cluster_are_told():
    sent = requests("alertmanager", message(), target("alertmanager", urls=["http://b:9093/am/", "http://a:9093"]))
    assert [each.url for each in sent] == ["http://a:9093/api/v2/alerts", "http://b:9093/am/api/v2/alerts"]
    assert len({each.body for each in sent}) == 1


def test_an_alert_that_fires_ends_by_itself_where_it_is_not_told_again():
    (request,) = requests("alertmanager", message(), target("alertmanager", urls=["http://a"], resend_seconds=30))
    (sent,) = body(request)
    assert sent["labels"] == LABELS
    assert sent["startsAt"] == "2026-03-01T12:00:01.500Z"
    assert datetime.fromisoformat(sent["endsAt"]) == NOW + timedelta(seconds=120)


def test_one_that_is_over_says_when():
    (request,) = requests("alertmanager", message("resolved"), target("alertmanager", urls=["http://a"]))
    assert body(request)[0]["endsAt"] == "2026-03-01T13:00:00.000Z"


def test_by_the_clock_all_that_fires_is_told_again_and_nothing_else():
    where = target("alertmanager", urls=["http://a"], resend_seconds=30)
    fires, over = alert(labels={"alertname": "A"}), alert(NOW)
    (request,) = CHANNEL.tick([message("repeat", fires, over), message("repeat", alert())], where, NOW)
    assert [each["labels"] for each in body(request)] == [{"alertname": "A"}, LABELS]
    assert not CHANNEL.tick([], where, NOW)
    assert CHANNEL.every_seconds(where.settings) == 30


@pytest.mark.parametrize("secret", ["token\nX-Other: 1", "token\t", "token\n"])
def test_a_secret_that_no_header_can_hold_is_refused(secret):
    assert "one line" in (CHANNEL.secret_problem(secret, ()) or "")
    assert CHANNEL.secret_problem("token of ours", ()) is None


@pytest.mark.parametrize(("user", "header"), [("", "Bearer pw-123456"), ("hw", "Basic aHc6cHctMTIzNDU2")])
def test_it_logs_in(user, header):
    where = target("alertmanager", secret="pw-123456", urls=["http://a"], user=user)
    (request,) = requests("alertmanager", message(), where)
    assert request.headers["Authorization"] == header
    assert header in CHANNEL.clues(where)


def test_a_user_without_a_password_is_refused():
    where = target("alertmanager", urls=["http://a"], user="hw")
    assert [each.path for each in CHANNEL.setting_problems(where, has_secret=False)] == ["/secret"]
    assert not CHANNEL.setting_problems(where, has_secret=True)


@pytest.mark.parametrize(
    "settings",
    [{}, {"urls": []}, {"urls": ["http://169.254.169.254/"]}, {"urls": ["http://a"], "resend_seconds": 5}],
)
def test_what_does_not_fit_is_refused(settings):
    with pytest.raises(Refused):
        read(CHANNEL.settings, settings)


def test_a_real_one_has_what_fires_until_it_is_over(tmp_path: Path, monkeypatch):
    """A cluster of two, of which each is told."""
    monkeypatch.setenv("HEADWORKS_WEBHOOK_ALLOWED_NETWORKS", ALLOWED)
    ports = [free_port(), free_port()]
    with ExitStack() as stack:
        for port in ports:
            stack.enter_context(running(tmp_path / str(port), port))
        where = target("alertmanager", urls=[f"http://127.0.0.1:{port}" for port in ports])

        def tell(*arguments: Any) -> None:
            plan = CHANNEL.plan(message(*arguments), where, datetime.now(UTC))
            assert isinstance(plan, list)
            outcome = send(plan, lambda answer: CHANNEL.judge(answer, NOW))
            assert outcome.reason is Reason.TAKEN, outcome

        tell("first")
        assert [firing(port) for port in ports] == [[LABELS]] * 2
        tell("resolved", alert(datetime.now(UTC)))
        assert [firing(port) for port in ports] == [[]] * 2
        # What it does not take is not sent again.
        wrong = CHANNEL.plan(message("first", alert(labels={"": "x"})), where, datetime.now(UTC))
        assert isinstance(wrong, list)
        assert send(wrong, lambda answer: CHANNEL.judge(answer, NOW)).reason is Reason.INVALID


def running(folder: Path, port: int) -> Process:
    folder.mkdir()
    settings = folder / "alertmanager.yml"
    settings.write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
    argv: list[str | Path] = [
        service_binary("alertmanager"), f"--config.file={settings}", f"--storage.path={folder}",
        "--cluster.listen-address=", f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    process = Process(argv, log=folder / "log")
    process.wait_for_http(f"http://127.0.0.1:{port}/-/ready")
    return process


def firing(port: int) -> list[dict[str, str]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v2/alerts?active=true", timeout=5) as answer:
        return [each["labels"] for each in json.loads(answer.read())]
