from __future__ import annotations

import json

import pytest

from controlplane.alerts.receivers.registry import CHANNELS
from controlplane.core.errors import Refused
from controlplane.core.fields import read
from tests.controlplane.alerts.receivers.made import NOW, message, requests, target

CHANNEL = CHANNELS["heartbeat"]
URL = "https://hc.example/ping/0123"


def test_it_asks_or_posts_as_it_is_set():
    (posted,) = CHANNEL.tick((), target("heartbeat", secret=URL), NOW)
    assert (posted.url, posted.method, json.loads(posted.body)["status"]) == (URL, "POST", "alive")
    (asked,) = CHANNEL.tick((), target("heartbeat", secret=URL, method="GET"), NOW)
    assert (asked.url, asked.method, asked.body) == (URL, "GET", b"")


def test_a_test_is_a_heartbeat():
    where = target("heartbeat", secret=URL)
    assert requests("heartbeat", message(), where) == list(CHANNEL.tick((), where, NOW))
    assert not CHANNEL.takes_incidents


@pytest.mark.parametrize(
    "settings", [{"method": "PUT"}, {"interval_seconds": 9}, {"interval_seconds": 3601}, {"url": ""}]
)
def test_what_does_not_fit_is_refused(settings):
    with pytest.raises(Refused):
        read(CHANNEL.settings, settings)
