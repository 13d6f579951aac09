"""What stored values are called where they stand side by side, as in diffs: choices, actions, detectors, weekdays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.core.exceptions import FieldDoesNotExist
from django.db.models import Model

from controlplane.alerts.models import Delivery, Incident, Receiver, Rule
from controlplane.alerts.pipeline.silencing import DAYS
from controlplane.breakers.models import Override
from controlplane.core.models import ApiToken, User
from controlplane.diagnosis.models import Proposal
from controlplane.fleet.models import Act, Artifact, Engine, Pool
from controlplane.planner.models import WhatIfRun
from controlplane.remediation.models import Remediation, RemediationPolicy
from controlplane.rollouts.models import Rollout
from controlplane.web.forms.alert import DAY_NAMES
from controlplane.web.labels import action_label, cause_label, gpu_source_label
from controlplane.web.shown.diagnosis import title_of
from controlplane.web.shown.spoken import spoken
from controlplane.web.states import look_of

# By noun, the rows that it stands for: a field with choices has its values' names from them.
_ROWS: Mapping[str, type[Model]] = {
    "act": Act,
    "api token": ApiToken,
    "artifact": Artifact,
    "delivery": Delivery,
    "engine": Engine,
    "incident": Incident,
    "lever": Proposal,
    "override": Override,
    "pool": Pool,
    "receiver": Receiver,
    "remediation": Remediation,
    "remediation policy": RemediationPolicy,
    "rollout": Rollout,
    "rule": Rule,
    "user": User,
    "what_if": WhatIfRun,
}
# States that have their names from how they look, by noun and field: what their looks' names begin with.
_LOOKS = {("batch", "status"): "", ("engine", "condition"): "", ("stage", "state"): "stage_"}
_DAY_NAMES = dict(zip(DAYS, DAY_NAMES, strict=True))


def in_words(place: Sequence[str], noun: str, text: str) -> str:
    """A stored value as people call it, in the reader's language; what has no name stands as it is."""
    field = place[-1]
    if field == "days":
        return ", ".join(str(_DAY_NAMES.get(day, day)) for day in text.split(", "))
    if noun == "remediation policy" and place[0] == "actions":
        return action_label(text)
    if len(place) > 1:
        return text
    if (noun, field) in _LOOKS:
        look = look_of(_LOOKS[noun, field] + text)
        return text if look.label == _LOOKS[noun, field] + text else str(look.label)
    match noun, field:
        case (("act" | "remediation"), "action"):
            return action_label(text)
        case "lever policy", "detector":
            return title_of(text)
        case "node", "gpu_source":
            return gpu_source_label(text)
        case "remediation", "cause":
            return cause_label(text)
        case _, "said":
            return spoken(text)
    return _choices(noun, field).get(text, text)


def _choices(noun: str, field: str) -> Mapping[str, str]:
    if noun not in _ROWS:
        return {}
    try:
        known = _ROWS[noun]._meta.get_field(field)
    except FieldDoesNotExist:
        return {}
    return {str(value): str(label) for value, label in getattr(known, "flatchoices", None) or ()}
