from __future__ import annotations

import re
from pathlib import Path

import pytest

from wire.engine_pages.names import CANONICAL, NAMES, OWN_SERIES, RANK_SERIES

ROOT = Path(__file__).resolve().parents[3]
METRICS, ENGINES = ((ROOT / "docs" / page).read_text() for page in ("metrics.md", "engines.md"))
REASONS = re.compile(r'NotMetrics\(\s*"(\w+)"')


@pytest.mark.parametrize("name", [*CANONICAL, *(f"rank_{name}" for name in RANK_SERIES)])
def test_every_series_is_documented(name):
    assert f"`{re.sub('_seconds_(sum|count)$', '_seconds', name)}`" in METRICS


@pytest.mark.parametrize("kind", OWN_SERIES)
def test_what_passes_of_its_own_is_documented(kind):
    assert f"| `{kind}` | {', '.join(f'`{name}`' for name in OWN_SERIES[kind])} |" in ENGINES


@pytest.mark.parametrize("kind", NAMES)
def test_what_a_kind_needs_is_documented(kind):
    assert re.search(rf"^\| `{kind}`.* \| `/\S*health", ENGINES, re.MULTILINE)


def test_every_reason_for_which_a_page_is_refused_is_documented():
    folders = (ROOT / "gpu_agent" / "engines", ROOT / "wire" / "engine_pages")
    sources = (file.read_text() for folder in folders for file in folder.glob("*.py"))
    reasons = {reason for source in sources for reason in REASONS.findall(source)}
    assert len(reasons) > 8
    assert {reason for reason in reasons if f"`{reason}`" not in METRICS + ENGINES} == set()
