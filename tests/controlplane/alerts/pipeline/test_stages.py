"""The pipeline as a whole: from what fires to who is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controlplane.alerts.pipeline import stages
from controlplane.alerts.pipeline.dedup import Reason, Told
from controlplane.alerts.pipeline.grouping import Route, Timing
from controlplane.alerts.pipeline.inhibition import InhibitionRule, Inhibitors
from controlplane.alerts.pipeline.matchers import read
from controlplane.alerts.pipeline.silencing import Silencers, SilenceSpan
from controlplane.alerts.pipeline.stages import Firing, Listener, Look, Standing, judged, look_again, messages
from controlplane.alerts.pipeline.timing import Change, look_at

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
TIMING = Timing(timedelta(seconds=10), timedelta(minutes=5), 4 * HOUR)
ONCALL = Listener(1, "oncall", enabled=True, min_rank=1, send_resolved=True)
GRAVE = Listener(2, "grave", enabled=True, min_rank=2, send_resolved=False)
OFF = Listener(3, "off", enabled=False, min_rank=0, send_resolved=True)
XID = Firing(1, {"alertname": "GpuXid", "node": "n1", "severity": "critical"}, 2)
DOWN = Firing(2, {"alertname": "EngineDown", "node": "n1", "severity": "warning"}, 1)
BY_HARDWARE = InhibitionRule("hardware", read(['alertname="GpuXid"']), read(['alertname="EngineDown"']), ("node",))


def laid_down(
    *,
    causes: Sequence[Firing] = (),
    silences: Sequence[SilenceSpan] = (),
    routes: Sequence[Route] = (),
    now: datetime = NOW,
) -> Standing:
    inhibitors = Inhibitors([BY_HARDWARE], [each.labels for each in causes])
    return Standing(inhibitors, Silencers(silences, [], now), routes, [ONCALL, GRAVE, OFF])


def look(*firing: Firing, told: Mapping[int, Told] | None = None, **more: Any) -> Look:
    standing = more.pop("standing", laid_down())
    return judged(Look(NOW, standing, TIMING, firing, more.pop("over", frozenset()), told or {}, **more))


def silence(*matchers: str, hours: float = 1) -> SilenceSpan:
    return SilenceSpan("s", read(matchers), NOW - HOUR, NOW + hours * HOUR)


def test_those_that_it_is_grave_enough_for_are_told() -> None:
    assert messages(look(DOWN)) == {1: Reason.FIRST}
    assert messages(look(DOWN, XID)) == {1: Reason.FIRST, 2: Reason.FIRST}


def test_what_was_caused_by_what_fires_is_mute_and_is_said_to_be() -> None:
    found = look(DOWN, standing=laid_down(causes=[XID]))
    assert (messages(found), found.muted) == ({}, {2: {"inhibition": ["hardware"]}})
    assert found.reasons[1] is Reason.NOTHING_HEARD


def test_a_silence_takes_the_alerts_that_it_matches_and_leaves_the_others() -> None:
    found = look(DOWN, XID, standing=laid_down(silences=[silence('severity="critical"')]))
    assert messages(found) == {1: Reason.FIRST}
    assert [alert.key for alert in found.heard[1]] == [2]
    assert found.muted == {1: {"silence": ["s"]}}


def test_every_reason_for_which_one_is_mute_is_named() -> None:
    standing = laid_down(causes=[XID], silences=[silence('node="n1"')])
    assert look(DOWN, standing=standing).muted == {2: {"inhibition": ["hardware"], "silence": ["s"]}}


def test_the_end_of_a_silence_is_looked_at() -> None:
    found = look(DOWN, standing=laid_down(silences=[silence('node="n1"')]))
    assert look_again(found) == NOW + HOUR


def test_of_a_snoozed_incident_nobody_hears_until_its_end() -> None:
    found = look(XID, snoozed_until=NOW + 2 * HOUR)
    assert (messages(found), look_again(found)) == ({}, NOW + 2 * HOUR)
    told = {1: Told(False, frozenset({1}), 2, NOW - HOUR)}
    assert messages(look(XID, told=told, snoozed_until=NOW))[1] is Reason.REPEAT
    assert messages(look(told=told, over=frozenset({1}), snoozed_until=NOW + HOUR)) == {1: Reason.RESOLVED}


def test_who_is_off_is_told_of_ends_alone() -> None:
    told = {3: Told(False, frozenset({1}), 2, NOW - HOUR)}
    assert 3 not in messages(look(XID, Firing(9, XID.labels, 2), told=told))
    assert messages(look(told=told, over=frozenset({1}))) == {3: Reason.RESOLVED}


def test_routes_choose_the_receivers_alert_by_alert() -> None:
    def route(name: str, matchers: list[str], receivers: tuple[str, ...]) -> Route:
        return Route(name, read(matchers), receivers, (), TIMING, goes_on=False)

    routes = [route("xid", ['alertname="GpuXid"'], ("grave",)), route("rest", [], ("oncall",))]
    found = look(DOWN, XID, standing=laid_down(routes=routes))
    assert {key: [alert.key for alert in heard] for key, heard in found.heard.items()} == {1: [2], 2: [1], 3: []}


def test_what_has_ended_is_looked_at_no_more() -> None:
    assert look_again(look()) is None


def test_one_that_nobody_heard_of_is_looked_at_again_all_the_same() -> None:
    assert (
        look_again(look(DOWN, standing=Standing(Inhibitors([], []), Silencers([], [], NOW), [], []))) == NOW + 4 * HOUR
    )


def test_the_stages_are_the_ones_that_are_written_down() -> None:
    assert [stage.__name__ for stage in stages.STAGES] == ["inhibit", "silence", "snooze", "route", "deduplicate"]


def test_a_group_waits_for_its_others_and_what_is_urgent_does_not() -> None:
    assert look_at(Change.NEWS, TIMING, None, None, NOW) == NOW + timedelta(seconds=10)
    # The tenth alert puts nothing off.
    assert look_at(Change.NEWS, TIMING, None, NOW + timedelta(seconds=3), NOW) == NOW + timedelta(seconds=3)
    # Two messages of news stand an interval apart; after a long time what is new waits no longer than at first.
    assert look_at(Change.NEWS, TIMING, NOW - timedelta(minutes=1), None, NOW) == NOW + timedelta(minutes=4)
    assert look_at(Change.NEWS, TIMING, NOW - HOUR, None, NOW) == NOW + timedelta(seconds=10)
    assert look_at(Change.URGENT, TIMING, NOW, NOW + HOUR, NOW) == NOW


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["open", "end", "mute", "hear", "wait", "acknowledge"]),
        st.integers(1, 4),
        st.integers(1, 300),
    ),
    max_size=40,
)


@given(STEPS)
def test_nothing_is_lost_and_nothing_is_said_twice(steps: list[tuple[str, int, int]]) -> None:
    """One incident, looked at after each step: alerts open, end and are silenced, as minutes go by."""
    now, firing, mute, acknowledged = NOW, set[int](), set[int](), False
    muted_at_end: set[int] = set()
    told: dict[int, Told] = {}
    for act, key, minutes in steps:
        now += timedelta(minutes=minutes)
        if act == "open":
            firing.add(key)
        elif act == "end":
            firing.discard(key)
            muted_at_end = muted_at_end | {key} if key in mute else muted_at_end - {key}
        elif act in ("mute", "hear"):
            (mute.add if act == "mute" else mute.discard)(key)
        elif act == "acknowledge":
            acknowledged = True
        silences = [SilenceSpan(str(each), read([f'n="{each}"']), NOW - HOUR, now + HOUR) for each in mute]
        over = frozenset(told[1].alerts - firing - muted_at_end) if 1 in told else frozenset()
        found = judged(
            Look(
                now, laid_down(silences=silences, now=now), TIMING,
                [Firing(each, {"n": str(each), "severity": "warning"}, 1) for each in sorted(firing)],
                over, told, acknowledged,
            )
        )  # fmt: skip
        heard, sent = firing - mute, messages(found).get(1)
        before = told.get(1)
        if sent is None:
            assert before is None or heard <= before.alerts, "an alert that nobody was told of"
            assert firing or before is None or before.resolved, "an end that nobody was told of"
        elif sent is Reason.RESOLVED:
            assert before is not None
            assert not firing
        else:
            assert heard
            same = before is not None and not before.resolved and before.alerts == heard
            assert before is None or not same or now - before.at >= TIMING.repeat_interval, "the same, too soon"
        if sent is not None:
            told = {1: Told(sent is Reason.RESOLVED, frozenset(heard), 1, now)}
        if not firing:
            # The next alert is of another incident.
            told, acknowledged = {}, False
