"""What the result of a rule's expression is: series with the labels of their alerts. Pure.

As Prometheus labels alerts (rules/alerting.go): the labels of the series without its name, under those of the rule, and
`alertname`. A label of the rule whose template renders to nothing takes that label away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controlplane.alerts.annotation import asks, rendered
from controlplane.alerts.template_parts import Ask, NoAnswer, ask_nothing
from controlplane.core.reported import storable_text
from controlplane.telemetry.query import Sample
from controlplane.telemetry.results import number
from wire.canonical import content_hash
from wire.write_body import METRIC_NAME

Labels = Mapping[str, str]


class BadResult(ValueError):
    """A result that no alerts can be made of; the message says why."""


@dataclass(frozen=True)
class Found:
    """One series of a rule's result: the labels of its alert, its value as Prometheus writes numbers, and the labels
    that it has of itself, which templates are about. `texts`: those annotations that had to ask the metric store."""

    labels: dict[str, str]
    value: str
    series: Labels = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)

    def rendered(self, annotations: Mapping[str, str]) -> dict[str, str]:
        """The rule's annotations of this series."""
        return {
            name: self.texts[name] if name in self.texts else rendered(text, self.series, self.value)
            for name, text in annotations.items()
        }


def found_in(
    samples: Sequence[Sample],
    alertname: str,
    labels: Labels,
    series_max: int,
    *,
    annotations: Mapping[str, str] | None = None,
    ask: Ask = ask_nothing,
    ask_for_labels: Ask | None = None,
) -> dict[str, Found]:
    """Each series of a result by the fingerprint of its alert's labels. Raises BadResult.

    Those of the annotations that ask are rendered at once: by when the others are, nothing may be asked any more.
    """
    if len(samples) > series_max:
        raise BadResult(
            f"the result has {len(samples)} series; each would be an alert, and HEADWORKS_RULE_SERIES_MAX is "
            f"{series_max}: choose or aggregate fewer"
        )
    asking = {name: text for name, text in (annotations or {}).items() if asks(text)}
    found = {}
    for sample in samples:
        series = {name: storable_text(value) for name, value in sample.labels.items()}
        value = number(sample.value)
        own = _own_labels(labels, series, value, ask_for_labels or ask)
        merged = {name: text for name, text in {**series, **own, "alertname": alertname}.items() if text}
        merged.pop(METRIC_NAME, None)
        texts = {name: rendered(text, series, value, ask) for name, text in asking.items()}
        found[content_hash(merged)] = Found(merged, value, series, texts)
    if len(found) < len(samples):
        raise BadResult("two series have the same labels once the rule's labels are set; aggregate them into one")
    return found


def _own_labels(labels: Labels, series: Labels, value: str, ask: Ask) -> dict[str, str]:
    """Those of the rule. Not known for now, they are no others: the alert would end, and another one begin."""
    try:
        return {name: rendered(text, series, value, ask, must_answer=True) for name, text in labels.items()}
    except NoAnswer as failed:
        raise BadResult(f"its labels are not known now: {failed}") from failed
