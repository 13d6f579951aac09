"""What is kept for all who ask is made once, and anew after each change."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controlplane.web import kept as module
from controlplane.web.kept import Kept


class Hub:
    running = True
    changes = 0


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    made = Hub()
    monkeypatch.setattr(module, "hub", made)
    return made


def _counter() -> Callable[[], str]:
    rendered = iter(range(10))
    return lambda: f"rendering {next(rendered)}"


def test_it_is_made_once_a_change_for_each_key(hub: Hub) -> None:
    kept, first, second = Kept[str](), _counter(), _counter()
    assert [kept.get(("targets", "en"), first) for _ in range(3)] == ["rendering 0"] * 3
    assert kept.get(("targets", "tr"), second) == "rendering 0"
    hub.changes = 1
    assert kept.get(("targets", "en"), first) == "rendering 1"


def test_it_keeps_nothing_for_long_since_time_alone_makes_a_target_lost(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, render = Kept[str](), _counter()
    kept.get("targets", render)
    monkeypatch.setattr(module, "KEPT_SECONDS", -1.0)
    assert kept.get("targets", render) == "rendering 1"


def test_it_keeps_nothing_where_no_hub_tells_of_changes(hub: Hub) -> None:
    hub.running = False
    kept, render = Kept[str](), _counter()
    kept.get("targets", render)
    assert kept.get("targets", render) == "rendering 1"


def test_what_seldom_changes_is_kept_for_longer(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_SECONDS", -1.0)
    kept, render = Kept[str](60.0), _counter()
    assert [kept.get("targets", render) for _ in range(2)] == ["rendering 0"] * 2
    hub.changes = 1
    assert kept.get("targets", render) == "rendering 1"
