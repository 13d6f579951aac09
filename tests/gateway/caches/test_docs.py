"""docs/caches.md speaks of settings, series, verdicts and words of headers that are there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from gateway import settings
from gateway.caches.caches import Hit
from gateway.caches.room import Answer, Kept
from gateway.feedback import Effect, Verdict
from gateway.metrics import Metrics

PAGE = (Path(__file__).parents[3] / "docs" / "caches.md").read_text(encoding="utf-8")


def test_the_settings_of_caches_are_on_it_and_those_on_it_exist() -> None:
    told = set(re.findall(r"HEADWORKS_GATEWAY_\w+", PAGE))
    known = {setting.name for setting in settings.SETTINGS}
    assert told <= known
    assert {name for name in known if name.startswith("HEADWORKS_GATEWAY_CACHE_")} <= told


def test_the_series_on_it_exist() -> None:
    known = {sample.name for family in Metrics().families.registry.collect() for sample in family.samples}
    known |= {f"{family.name}_total" for family in Metrics().families.registry.collect() if family.type == "counter"}
    told = set(re.findall(r"headworks_gateway_\w+", PAGE))
    assert len(told) == 5
    assert told <= known


@pytest.mark.parametrize("word", [*get_args(Verdict), *get_args(Effect)])
def test_every_verdict_and_effect_is_on_it(word: str) -> None:
    assert f"`{word}`" in PAGE


def test_the_header_is_as_it_says() -> None:
    kept = Kept(Answer(b"x", False, 0), lambda: None)
    told = [Hit("exact", kept, 12_999).header, Hit("semantic", kept, 12_000, 0.9731).header]
    assert told == [b"exact; age=12", b"semantic; age=12; similarity=0.973"]
    assert all(f"| `{header.decode()}` |" in PAGE for header in told)
