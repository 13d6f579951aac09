"""docs/metrics.md on metric writers: its calls work in order as they stand, and it names every field and reason."""

from __future__ import annotations

import json
import re
from pathlib import Path

from controlplane.telemetry.writers import MetricWriterFields

PAGE = (Path(__file__).parents[3] / "docs/metrics.md").read_text()
SECTION = PAGE.split("## Another Prometheus writes here\n")[1].split("\n## ")[0]
_CALL = re.compile(r"""^api (?:-X (\w+) )?"\$HEADWORKS/api/v1([^"]+)"(?: \\\n +)?(?: ?-d '([^']+)')?""", re.MULTILINE)


def test_the_calls_are_answered(admin):
    calls = _CALL.findall(SECTION)
    assert len(calls) == SECTION.count('"$HEADWORKS/') > 0
    for method, path, body in calls:
        answer = admin.call(method or "POST", path, json.loads(body) if body else None)
        assert answer.status_code in (200, 201), (method, path, answer.content)


def test_every_field_and_reason_is_named():
    reasons = ("missing_label", "own_name", "foreign_owner", "recorded_name", "overlap")
    assert {name for name in (*MetricWriterFields.model_fields, *reasons) if f"`{name}`" not in SECTION} == set()
