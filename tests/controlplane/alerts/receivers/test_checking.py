"""Whatever is given of a receiver is taken or refused by its name; what is taken can be sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.alerts.receivers.checking import problems_of, read_settings, url_of
from controlplane.alerts.receivers.contract import Channel, Job, Target
from controlplane.alerts.receivers.registry import CHANNELS
from controlplane.core.errors import Refused
from tests.controlplane.alerts.receivers.made import NOW, message
from wire.canonical import Document

FIELDS = ["to", "urls", "user", "resend_seconds", "teams", "method", "interval_seconds", "x"]
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(), st.sampled_from(["GET", "a@example.com", "http://am.example"])
)
VALUES = st.one_of(LEAVES, st.lists(LEAVES, max_size=3), st.dictionaries(st.text(), LEAVES, max_size=2))
GIVEN = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4)
TEXTS = st.one_of(st.text(), st.sampled_from(["", "https://hooks.example/x?y=z", "R" * 32, "json://host/token"]))


def settings_of(channel: Channel, given: Document) -> tuple[Document | None, list[str]]:
    """As they are taken, or the paths of what is wrong with them."""
    try:
        return read_settings(channel, given), []
    except Refused as refused:
        return None, [problem.path for problem in refused.problems]


@pytest.mark.parametrize("kind", CHANNELS)
@given(settings=GIVEN, url=TEXTS, secret=st.none() | TEXTS)
def test_it_is_taken_or_refused_where_it_stands(kind, settings, url, secret):
    channel = CHANNELS[kind]
    read, refused = settings_of(channel, settings)
    assert all(path.startswith("/settings/") for path in refused)
    if read is None:
        return
    target = Target("oncall", url_of(channel, url), read, secret or "")
    problems = problems_of(channel, target, secret=secret, has_secret=bool(secret))
    assert {problem.path for problem in problems} <= {"/url", "/secret"}
    if not problems:
        plan = channel.plan(message(), target, NOW)
        assert isinstance(plan, Job) or plan


@pytest.mark.parametrize("kind", CHANNELS)
@pytest.mark.parametrize("occasion", ["first", "changed", "repeat", "acknowledged", "resolved"])
def test_each_kind_has_a_message_for_each_occasion(kind, occasion):
    samples = {"to": ["a@example.com"], "urls": ["http://am.example"]}
    channel = CHANNELS[kind]
    settings = read_settings(
        channel, {name: samples[name] for name in samples if name in channel.settings.model_fields}
    )
    plan = channel.plan(message(occasion), Target("oncall", url_of(channel, "https://a.example/"), settings, "s"), NOW)
    assert isinstance(plan, Job) or all(request.url for request in plan)
