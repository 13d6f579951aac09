"""Panels are rendered once for all who ask, and anew after each change."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controlplane.web import panels
from controlplane.web.panels import Panels


class Hub:
    running = True
    changes = 0


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    made = Hub()
    monkeypatch.setattr(panels, "hub", made)
    return made


def _counter() -> Callable[[], str]:
    rendered = iter(range(10))
    return lambda: f"rendering {next(rendered)}"


def test_it_renders_once_a_change_for_each_variant(hub: Hub) -> None:
    kept, first, second = Panels(), _counter(), _counter()
    assert [kept.get(("targets", "en"), first) for _ in range(3)] == ["rendering 0"] * 3
    assert kept.get(("targets", "tr"), second) == "rendering 0"
    hub.changes = 1
    assert kept.get(("targets", "en"), first) == "rendering 1"


def test_it_keeps_nothing_for_long_since_time_alone_makes_a_target_lost(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, render = Panels(), _counter()
    kept.get("targets", render)
    monkeypatch.setattr(panels, "KEPT_SECONDS", -1.0)
    assert kept.get("targets", render) == "rendering 1"


def test_it_keeps_nothing_where_no_hub_tells_of_changes(hub: Hub) -> None:
    hub.running = False
    kept, render = Panels(), _counter()
    kept.get("targets", render)
    assert kept.get("targets", render) == "rendering 1"
