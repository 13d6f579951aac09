"""Inhibition: what fires keeps what it caused mute, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controlplane.alerts.pipeline.inhibition import InhibitionRule, Inhibitors, Labels, sources_of
from controlplane.alerts.pipeline.matchers import all_match, read

NODE_DOWN = InhibitionRule("node-down", read(['alertname="NodeLost"']), read(['node!=""']), ("node",))
GRAVER = InhibitionRule("graver", read(['severity=~"critical|warning"']), read(['severity=~"warning|info"']), ())
LOST = {"alertname": "NodeLost", "node": "n1"}


def test_a_lost_node_keeps_its_gpus_mute_and_no_other_nodes() -> None:
    inhibitors = Inhibitors([NODE_DOWN], [LOST, {"alertname": "GpuLost", "node": "n2"}])
    assert inhibitors.of({"alertname": "GpuLost", "node": "n1"}) == ["node-down"]
    assert inhibitors.of({"alertname": "GpuLost", "node": "n2"}) == []
    assert inhibitors.of({"alertname": "PoolDown"}) == []


def test_a_label_that_both_miss_is_equal() -> None:
    rule = InhibitionRule("a", read(['kind="cause"']), read(['kind="effect"']), ("node", "rack"))
    inhibitors = Inhibitors([rule], [{"kind": "cause", "node": "n1"}])
    assert inhibitors.of({"kind": "effect", "node": "n1"}) == ["a"]
    assert inhibitors.of({"kind": "effect", "node": "n1", "rack": "r"}) == []


def test_nothing_is_mute_because_of_itself() -> None:
    # The lost node's own alert is one of the targets, and there is nothing above it.
    assert Inhibitors([NODE_DOWN], [LOST]).of(LOST) == []


def test_what_both_sides_match_is_mute_only_because_of_what_is_a_source_alone() -> None:
    warning, info, critical = {"severity": "warning"}, {"severity": "info"}, {"severity": "critical"}
    assert Inhibitors([GRAVER], [warning]).of(warning) == []
    assert Inhibitors([GRAVER], [warning]).of(info) == ["graver"]
    assert Inhibitors([GRAVER], [warning, critical]).of(warning) == ["graver"]


def test_the_end_of_a_source_is_known_as_such() -> None:
    assert sources_of([NODE_DOWN], [{"alertname": "PoolDown"}, LOST])
    assert not sources_of([NODE_DOWN], [{"alertname": "PoolDown"}])


NAMES, VALUES = st.sampled_from(["a", "b", "alertname"]), st.sampled_from(["", "1", "2"])
LABELS = st.dictionaries(NAMES, VALUES)
MATCHERS = st.lists(
    st.builds(lambda name, op, value: f'{name}{op}"{value}"', NAMES, st.sampled_from(["=", "!="]), VALUES), max_size=2
)


def inhibited_plainly(rule: InhibitionRule, firing: list[Labels], labels: Labels) -> bool:
    """Alertmanager's words, one alert after the other."""
    if not all_match(rule.target, labels):
        return False
    both = all_match(rule.source, labels)
    return any(
        all_match(rule.source, source)
        and all(source.get(name, "") == labels.get(name, "") for name in rule.equal)
        and not (both and all_match(rule.target, source))
        for source in firing
    )


@given(MATCHERS, MATCHERS, st.lists(NAMES, unique=True), st.lists(LABELS, max_size=6), LABELS)
def test_the_index_says_what_looking_at_every_alert_says(
    source: list[str], target: list[str], equal: list[str], firing: list[Labels], labels: Labels
) -> None:
    rule = InhibitionRule("r", read(source), read(target), tuple(equal))
    assert Inhibitors([rule], firing).of(labels) == (["r"] if inhibited_plainly(rule, firing, labels) else [])
