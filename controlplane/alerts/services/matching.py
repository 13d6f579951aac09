"""Lists of matchers as people give them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from controlplane.alerts import models as rows
from controlplane.alerts.pipeline.grouping import matched_labels
from controlplane.alerts.pipeline.matchers import BadMatcher, all_match, matcher, read
from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from wire.problems import Problem

MATCHERS_MAX = 20
# Of the alerts that a silence would keep quiet, those that are named.
SHOWN_ALERTS = 10


def _written(text: str) -> str:
    try:
        return str(matcher(text))
    except BadMatcher as error:
        raise PydanticCustomError("matcher", "{message}", {"message": str(error)}) from error


def _choosing(texts: list[str]) -> list[str]:
    """As Alertmanager has it of silences: an alert without any label must not match."""
    if all_match(read(texts), {}):
        raise PydanticCustomError("all", 'these match every alert; to mean that, give severity=~".+"')
    return texts


MatcherText = Annotated[f.Text, AfterValidator(_written)]
# May be none: all alerts match.
Matchers = Annotated[list[MatcherText], Field(max_length=MATCHERS_MAX)]
# Choose some alerts.
ChoosingMatchers = Annotated[list[MatcherText], Field(min_length=1, max_length=MATCHERS_MAX), AfterValidator(_choosing)]


def firing_matched(texts: Iterable[str]) -> list[rows.Alert]:
    """The alerts that fire and that all of these matchers match, the oldest first."""
    matchers = read(texts)
    firing = rows.Alert.objects.filter(state=rows.IncidentState.FIRING).order_by("pk")
    return [each for each in firing if all_match(matchers, matched_labels(each.labels, each.severity))]


def warn_of_muted(unit: UnitOfWork, texts: Iterable[str]) -> None:
    """Say in the answer of a write, and of its dry run, which alerts that fire it keeps quiet."""
    found = firing_matched(texts)
    named = "; ".join(each.title for each in found[:SHOWN_ALERTS])
    more = f" and {len(found) - SHOWN_ALERTS} more" if len(found) > SHOWN_ALERTS else ""
    said = f"{len(found)} alerts that fire are matched: {named}{more}" if found else "no alert that fires is matched"
    unit.warnings.append(Problem("/matchers", "matched", said))
