"""Filters above lists: few names are chosen from, many are typed, and the page holds each once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from controlplane.core.changes import UnitOfWork
from controlplane.fleet.models import Engine, Pool
from controlplane.fleet.services import MODELS, NODES, POOLS
from controlplane.tenants import services as tenants
from controlplane.web.choices import among
from controlplane.web.forms.long_choices import CHOICES_MAX
from tests.web.asking import page
from tests.web.conftest import write
from tests.web.hardware import MODEL

pytestmark = pytest.mark.django_db
# Where names are chosen from, and of what.
FILTERS = {
    "/incidents/": ["pool", "node"],
    "/acts/": ["node"],
    "/decisions/": ["pool", "tenant"],
    "/fleet/": ["pool"],
}


@pytest.fixture(autouse=True)
def own_store(settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path


def fill(numbers: range) -> None:
    def make(unit: UnitOfWork) -> None:
        if not MODELS.find(MODEL):
            MODELS.create(unit, MODEL, {"max_context_tokens": 8192})
        for number in numbers:
            POOLS.create(unit, f"pool-{number}", {"model": MODEL})
            NODES.create(unit, f"node-{number}", {})
            tenants.create(unit, f"tenant-{number}", {})

    write(make)
    # The fleet offers the pools that have engines.
    Engine.objects.bulk_create(
        Engine(name=f"of-{pool.name}", pool=pool, url="http://10.2.0.7:8000", served_model=MODEL)
        for pool in Pool.objects.filter(engines=None)
    )


@pytest.mark.parametrize("path", FILTERS)
def test_few_are_chosen_from_and_many_are_typed(path: str, viewer: Client) -> None:
    fill(range(3))
    few = page(viewer, path)
    for name in FILTERS[path]:
        assert f'<select id="{name}" name="{name}">' in few
    fill(range(3, CHOICES_MAX + 1))
    many = page(viewer, path)
    for name in FILTERS[path]:
        assert f'<select id="{name}"' not in many
        assert f'<input type="text" id="{name}" name="{name}" value="" list="{name}-names"' in many
        offered = many.partition(f'<datalist id="{name}-names">')[2].partition("</datalist>")[0]
        assert len(re.findall(rf'<option value="{name}-\d+">', offered)) == CHOICES_MAX + 1


@pytest.mark.parametrize("path", FILTERS)
def test_what_is_typed_is_kept_and_looked_for(path: str, viewer: Client) -> None:
    fill(range(CHOICES_MAX + 1))
    name = FILTERS[path][0]
    shown = page(viewer, f"{path}?{name}=%20{name}-7%20")
    assert f'name="{name}" value="{name}-7"' in shown
    nothing = page(viewer, f"{path}?{name}=%22%3Cb%3E")
    assert f'name="{name}" value="&quot;&lt;b&gt;"' in nothing
    assert "is like that." in nothing


def test_a_chosen_one_is_offered_also_where_it_is_there_no_more() -> None:
    assert among("pool", "Pool", "all", ["b", "a"], "gone").values == [("a", "a"), ("b", "b"), ("gone", "gone")]
    assert among("pool", "Pool", "all", ["b", "a"], "").values == [("a", "a"), ("b", "b")]
