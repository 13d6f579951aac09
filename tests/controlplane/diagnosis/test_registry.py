"""The table of bottlenecks: twenty rows, in its order, each with what a person needs to understand it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from controlplane.diagnosis.asking import expressions
from controlplane.diagnosis.detector import WINDOW, Detector
from controlplane.diagnosis.detectors.registry import DETECTORS
from controlplane.diagnosis.texts import texts_of
from controlplane.telemetry.promql.grammar import parse

NAMES = (
    "kv_exhausted", "preemption_thrash", "vram_fragmentation", "prefill_stall", "head_of_line", "noisy_neighbour",
    "wrong_parallelism", "queue_debt", "retry_storm", "open_ended_output", "ghost_work", "repeat_questions", "fan_out",
    "runaway_agent", "sockets", "api_server_bound", "schema_compile", "cold_start", "deploy_and_probes", "hardware",
)  # fmt: skip
PAGE = Path(__file__).parents[3] / "docs" / "diagnosis.md"
each = pytest.mark.parametrize("detector", DETECTORS, ids=lambda detector: detector.name)


def test_all_twenty_are_there_in_the_order_of_the_table():
    assert [(detector.number, detector.name) for detector in DETECTORS] == list(enumerate(NAMES, start=1))


@each
def test_its_questions_are_promql(detector: Detector):
    for promql in expressions(detector, 120).values():
        assert WINDOW not in promql
        parse(promql)


@each
def test_it_speaks_every_language_of_the_pages(detector: Detector):
    for text in (detector.title, detector.explanation):
        assert set(texts_of(text)) == {"en", "tr"}


@each
def test_it_is_documented(detector: Detector):
    heading = re.search(rf"^### {detector.number}\. .*\(`{detector.name}`\)$", PAGE.read_text(), re.MULTILINE)
    assert heading, f"docs/diagnosis.md has no heading of {detector.name}"
