from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

import pytest

from adapters.production_stack.writer import RouterConfig
from tests.adapters.production_stack.router import read
from tests.adapters.production_stack.test_router_file import NOW_MS, PLAIN, engine, override, snapshot
from wire.pace import Pace
from wire.snapshot import NodeSnapshot, NodeState
from wire.snapshot_checks import SnapshotNotTaken, SnapshotRefused

TWO = {"a": engine(), "b": engine("http://10.0.0.6:8000", pool="long")}


class Clock:
    def __init__(self) -> None:
        self.ms = NOW_MS

    def __call__(self) -> float:
        return self.ms / 1000


def addresses(file: Path) -> list[str]:
    return [url for url, _ in read(file.read_bytes()).backends]


def test_the_file_is_written_for_the_router_to_read_and_left_alone_where_nothing_changed(tmp_path):
    file = tmp_path / "router.json"
    router = RouterConfig(file, PLAIN)
    router.on_snapshot(snapshot(TWO), 1)
    before = file.stat()
    assert before.st_mode & 0o777 == 0o644
    router.on_snapshot(snapshot(TWO, tenants={"acme": {"tpm_limit": 1}}), 2)
    assert file.stat().st_ino == before.st_ino
    router.on_snapshot(snapshot({"a": TWO["a"]}), 3)
    assert addresses(file) == ["http://10.0.0.5:8000"]


def test_a_slice_that_the_router_cannot_hold_leaves_the_file(tmp_path):
    file = tmp_path / "router.json"
    router = RouterConfig(file, PLAIN)
    router.on_snapshot(snapshot(TWO), 1)
    with pytest.raises(SnapshotRefused, match="no engine is left"):
        router.on_snapshot(snapshot({}), 2)
    with pytest.raises(SnapshotRefused, match="gateway"):
        router.on_snapshot(NodeSnapshot(schema=1, node=NodeState("n")), 3)
    assert len(addresses(file)) == 2


def test_a_file_that_cannot_be_written_is_refused_by_name(tmp_path):
    with pytest.raises(SnapshotRefused, match="cannot be written: No such file") as refused:
        RouterConfig(tmp_path / "missing" / "router.json", PLAIN).on_snapshot(snapshot(TWO), 1)
    assert refused.value.problems[0].rule == "not_written"


async def test_an_override_that_ends_brings_its_engines_back_without_a_new_slice(tmp_path):
    file, clock = tmp_path / "router.json", Clock()
    router = RouterConfig(file, PLAIN, clock)
    running = asyncio.create_task(router.run(_nothing))
    router.on_snapshot(snapshot(TWO, overrides={"o": override("long", "open", NOW_MS + 200)}), 1)
    assert addresses(file) == ["http://10.0.0.5:8000"]
    clock.ms += 200
    async with asyncio.timeout(10):
        while len(addresses(file)) < 2:  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.01)
    running.cancel()


async def test_what_could_not_be_written_is_tried_until_it_is_and_then_no_more(tmp_path):
    file = tmp_path / "full" / "router.json"
    router = RouterConfig(file, PLAIN, pace=Pace(retry_base_seconds=0.01, refused_cap_seconds=0.02))
    tried = 0

    async def adopt_again() -> None:
        nonlocal tried
        tried += 1
        with contextlib.suppress(SnapshotNotTaken):
            router.on_snapshot(snapshot(TWO), 1)

    running = asyncio.create_task(router.run(adopt_again))
    with pytest.raises(SnapshotNotTaken):
        router.on_snapshot(snapshot(TWO), 1)
    async with asyncio.timeout(10):
        while tried < 3:  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.005)
        file.parent.mkdir()
        while not file.exists():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert len(addresses(file)) == 2
    at_last = tried
    await asyncio.wait((running,), timeout=0.1)
    assert tried == at_last
    running.cancel()


async def test_what_the_router_cannot_hold_is_not_tried_again(tmp_path):
    router = RouterConfig(tmp_path / "router.json", PLAIN, pace=Pace(retry_base_seconds=0.001))
    tried = []

    async def adopt_again() -> None:
        tried.append(1)

    running = asyncio.create_task(router.run(adopt_again))
    with pytest.raises(SnapshotRefused):
        router.on_snapshot(snapshot({}), 1)
    await asyncio.wait((running,), timeout=0.1)
    assert tried == []
    running.cancel()


async def _nothing() -> None:
    """There is nothing to adopt."""


def test_what_is_left_out_and_not_enforced_is_logged_once(tmp_path, caplog):
    router = RouterConfig(tmp_path / "router.json", PLAIN)
    odd = snapshot({**TWO, "odd": engine("http://bare")}, tenants={"acme": {}})
    with caplog.at_level(logging.WARNING):
        router.on_snapshot(odd, 1)
        router.on_snapshot(odd, 2)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert said[0].startswith("left out /engines/odd: ")
    assert "tenants' limits" in said[1]
