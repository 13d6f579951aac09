"""Slack and Microsoft Teams: what a channel shows."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.alerts.delivery_plan import Reason
from controlplane.alerts.receivers import slack, teams
from controlplane.alerts.receivers.contract import Answer
from tests.controlplane.alerts.receivers.made import NOW, URL, alert, message, requests, target

HOOK = "https://hooks.slack.example/services/T0/B0/secretsecret"
FLOW = "https://flows.example/workflows/1/triggers/manual/paths/invoke?api-version=1&sig=secretsecret"
MENTION = "<!channel> & <https://evil.example|click> *now*"


def slack_attachment(*arguments, **changes):
    (request,) = requests("slack", message(*arguments, **changes), target("slack", secret=HOOK))
    assert request.url == HOOK
    (attachment,) = json.loads(request.body)["attachments"]
    return attachment


def card(*arguments, **changes):
    (request,) = requests("teams", message(*arguments, **changes), target("teams", secret=FLOW))
    assert request.url == FLOW
    document = json.loads(request.body)
    assert document["type"] == "message"
    return document["attachments"][0]["content"], len(request.body)


@pytest.mark.parametrize(
    ("occasion", "severity", "colour"),
    [("first", "critical", "#d32f2f"), ("first", "warning", "#f9a825"), ("resolved", "critical", "#2e7d32")],
)
def test_slack_shows_by_its_colour_how_grave_it_is(occasion, severity, colour):
    assert slack_attachment(occasion, severity=severity)["color"] == colour


def test_slack_leads_to_the_incident_and_its_runbook():
    shown = slack_attachment()
    assert shown["title_link"] == URL
    assert shown["text"].startswith("<https://hw.example/r|Runbook>\nfell off the bus\n• firing: XID 79 on GPU 3")
    assert {each["title"] for each in shown["fields"]} == {"alertname", "node", "pool"}


def test_slack_makes_nothing_of_what_an_alert_says_a_mention_or_a_link():
    shown = slack_attachment("first", alert(summary=MENTION), title=MENTION)
    assert "<!channel>" not in json.dumps(shown)
    assert "&lt;!channel&gt; &amp; &lt;https://evil.example|click&gt;" in shown["text"]


@given(st.text())
def test_slack_text_can_be_read_back_and_holds_no_control_sign(text):
    escaped = slack.escaped(text)
    assert not set("<>") & set(escaped)
    assert escaped.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") == text


def test_slack_shows_of_a_storm_what_there_is_room_for():
    shown = slack_attachment("changed", *[alert(summary="&" * 400) for _ in range(50)], alerts_more=4950)
    assert len(shown["text"]) <= 3010
    assert shown["text"].endswith("…")


def test_slack_says_that_a_payload_is_wrong_or_a_channel_gone():
    assert slack.Slack().judge(Answer(400, None, "invalid_payload"), NOW).reason is Reason.INVALID
    assert slack.Slack().judge(Answer(404, None, "no_service"), NOW).reason is Reason.REJECTED


def test_teams_shows_a_card_with_facts_and_buttons():
    shown, _ = card()
    assert shown["body"][0]["text"] == r"\[CRITICAL\] XID 79 on GPU 3"
    assert shown["body"][0]["color"] == "Attention"
    (facts,) = [each for each in shown["body"] if each["type"] == "FactSet"]
    assert {"title": "node", "value": "n1"} in facts["facts"]
    assert [each["url"] for each in shown["actions"]] == [URL, "https://hw.example/r"]
    assert card("resolved")[0]["body"][0]["color"] == "Good"


def test_teams_makes_nothing_of_what_an_alert_says_a_link():
    shown, _ = card("first", alert(summary="[click](https://evil.example)"))
    assert r"\[click\](https://evil.example)" in shown["body"][-1]["text"]
    assert teams.plain("a*b") == r"a\*b"


def test_teams_shows_of_a_storm_what_a_message_may_hold():
    _, size = card("changed", *[alert(summary="x" * 5000, description="d" * 9000) for _ in range(50)], alerts_more=4950)
    assert size < 28_000


@pytest.mark.parametrize("text", ["\N{FIRE}", "*", '"', "\N{FIRE}*"])
def test_teams_shows_less_where_its_characters_are_many_bytes(text):
    labels = {f"{number}{text * 300}": text * 300 for number in range(20)}
    alerts = [alert(labels=labels, summary=text * 5000, description=text * 9000) for _ in range(50)]
    shown, size = card("changed", *alerts, alerts_more=4950, title=text * 200)
    assert size < 28_000
    told = sum(each.get("text", "").startswith("firing: ") for each in shown["body"])
    assert told > 0
    assert shown["body"][-1]["text"] == f"and {5000 - told} more"


@pytest.mark.parametrize("channel", [slack.Slack(), teams.Teams()])
def test_their_urls_are_secrets_that_are_judged_as_urls(channel):
    assert channel.secret_problem(FLOW, ()) is None
    assert "link-local" in channel.secret_problem("http://169.254.169.254/?a=b", ())
    assert channel.secret_problem("https://user:pw@hooks.example/", ())
    assert channel.url_problem("https://hooks.example/") == (
        f"a receiver of kind {channel.kind.value} has no url; its URL is the secret"
    )
