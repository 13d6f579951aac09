from __future__ import annotations

import json

import pytest

from bench.support.report import Targets, report

TARGETS: Targets = {"p99_ms": ("at most", 10.0), "requests_per_second": ("at least", 100.0)}


@pytest.mark.parametrize(
    ("p99_ms", "requests_per_second", "status"),
    [(10.0, 100.0, 0), (10.0001, 100.0, 1), (10.0, 99.9999, 1), (9.0, 150.0, 0)],
)
def test_a_benchmark_succeeds_only_within_every_bound(capsys, p99_ms, requests_per_second, status):
    figures = {"p99_ms": p99_ms, "requests_per_second": requests_per_second, "other": 1.23456}
    assert report("example", "What it is.", figures, TARGETS) == status
    text, *table, told = capsys.readouterr().out.splitlines()
    assert (text, len(table)) == ("What it is.", 3)
    said = json.loads(told)
    assert said["holds"] == (status == 0)
    assert said["targets"] == {"p99_ms": "at most 10", "requests_per_second": "at least 100"}
    assert said["figures"]["other"] == 1.235
