"""What detectors find and offer in the form that rows keep and REST answers with.

It is made before anything is stored, so that a text that cannot be made, or a value that is no JSON, is its detector's
fault alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import islice

from controlplane.diagnosis.asking import in_window
from controlplane.diagnosis.detector import Evidence, Finding, Lever
from controlplane.diagnosis.texts import texts_of
from wire.canonical import Document

# Enough to read; the last digits change with every look, and would make a row of each.
_DIGITS = 4


@dataclass(frozen=True)
class Prepared:
    """A finding: where, all that a row keeps of it besides, and of each of its levers by key, the best first."""

    subject: str
    columns: Document
    levers: dict[str, Document]


def prepared(found: Iterable[Finding], most: int, window_seconds: int) -> list[Prepared]:
    """One a subject, and no more than `most`: the most confident. The window is filled into the evidence's PromQL."""
    by_subject: dict[str, Finding] = {}
    for each in sorted(found, key=lambda each: (-each.confidence_permille, each.subject)):
        by_subject.setdefault(each.subject, each)
    return [_prepared(each, window_seconds) for each in islice(by_subject.values(), most)]


def _prepared(found: Finding, window_seconds: int) -> Prepared:
    levers = {lever.key: _plain(_lever_columns(lever, place)) for place, lever in enumerate(found.levers)}
    return Prepared(found.subject, _plain(_finding_columns(found, window_seconds)), levers)


def _plain(columns: Document) -> Document:
    """As it comes back from a database: with lists for tuples. Raises TypeError, ValueError for what is no JSON."""
    plain: Document = json.loads(json.dumps(columns, allow_nan=False))
    return plain


def _finding_columns(found: Finding, window_seconds: int) -> Document:
    return {
        "confidence_permille": max(0, min(1000, found.confidence_permille)),
        "summary": texts_of(found.summary),
        "evidence": [_evidence(each, window_seconds) for each in found.evidence if math.isfinite(each.value)],
        "pools": list(dict.fromkeys(found.pools)),
        "tenants": list(dict.fromkeys(found.tenants)),
    }


def _evidence(evidence: Evidence, window_seconds: int) -> Document:
    return {
        **asdict(evidence),
        "value": rounded(evidence.value),
        "limit": rounded(evidence.limit),
        "expr": in_window(evidence.expr, window_seconds),
    }


def rounded(value: float | None) -> float | None:
    """To four significant digits; whole numbers stay whole."""
    if value is None or value == 0:
        return value
    digits = _DIGITS - 1 - math.floor(math.log10(abs(value)))
    return round(value, digits) if digits > 0 else float(round(value))


def _lever_columns(lever: Lever, place: int) -> Document:
    return {
        "place": place,
        "title": texts_of(lever.title),
        "why": texts_of(lever.why),
        "advice": texts_of(lever.advice) if lever.advice else {},
        "edits": [
            {"noun": edit.noun, "key": edit.key, "changes": dict(edit.changes), "create": edit.create}
            for edit in lever.edits
        ],
        "commands": [
            {"subject": command.subject, "action": command.action, "arguments": dict(command.arguments)}
            for command in lever.commands
        ],
    }
