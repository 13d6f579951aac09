"""Which alerts are mute because of what caused them. Pure.

As Alertmanager does it (inhibit/inhibit.go): while an alert that the source's matchers match fires, those that the
target's match and that have the same values of the labels `equal` are mute. One that is missing is an empty one. An
alert that both sides match is not mute because of another one like that, itself included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controlplane.alerts.pipeline.matchers import Matcher, all_match

Labels = Mapping[str, str]
_NAME = "alertname"


@dataclass(frozen=True)
class InhibitionRule:
    name: str
    source: tuple[Matcher, ...]
    target: tuple[Matcher, ...]
    equal: tuple[str, ...]

    def values(self, labels: Labels) -> tuple[str, ...]:
        return tuple(labels.get(name, "") for name in self.equal)

    def may_be_of(self, alertname: str) -> bool:
        """Whether an alert of this name can be a source."""
        return all_match((each for each in self.source if each.label == _NAME), {_NAME: alertname})


class Inhibitors:
    """What fires, looked up by the labels that must be equal, so that each alert costs one look a rule."""

    def __init__(self, rules: Sequence[InhibitionRule], firing: Iterable[Labels]) -> None:
        self._rules = rules
        # Of each rule: values of `equal` → whether one of the sources there is no target itself.
        self._sources: list[dict[tuple[str, ...], bool]] = [{} for _ in rules]
        # In a storm thousands fire under a few names, by which most rules know that they are none of theirs.
        of_name: dict[str, list[tuple[InhibitionRule, dict[tuple[str, ...], bool]]]] = {}
        for labels in firing:
            name = labels.get(_NAME, "")
            if name not in of_name:
                pairs = zip(rules, self._sources, strict=True)
                of_name[name] = [(rule, sources) for rule, sources in pairs if rule.may_be_of(name)]
            for rule, sources in of_name[name]:
                if all_match(rule.source, labels):
                    values = rule.values(labels)
                    sources[values] = sources.get(values, False) or not all_match(rule.target, labels)

    def of(self, labels: Labels) -> list[str]:
        """Names of the rules by which an alert of these labels is mute."""
        return [
            rule.name
            for rule, sources in zip(self._rules, self._sources, strict=True)
            if (one_sided := sources.get(rule.values(labels))) is not None
            and all_match(rule.target, labels)
            and (one_sided or not all_match(rule.source, labels))
        ]


def sources_of(rules: Sequence[InhibitionRule], ended: Iterable[Labels]) -> bool:
    """Whether one of these alerts, which have ended, may have kept others mute."""
    return any(all_match(rule.source, labels) for labels in ended for rule in rules)
