from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.measure.artifacts import Artifacts

FILES = {hashlib.sha256(data).hexdigest(): data for data in (b"one", b"two", b"three")}
ONE, TWO, THREE = FILES


class Loaded:
    """Artifacts whose files are read as text, and what was fetched for them."""

    def __init__(self, directory: Path) -> None:
        self.fetched: list[str] = []
        self._changed = asyncio.Event()
        self.artifacts = Artifacts("text", bytes.decode, directory, self._fetch, self._now, 0.01, self._changed.set)

    async def want(self, *wanted: str) -> None:
        self.artifacts.configure(set(wanted))
        async with asyncio.timeout(10):
            while any(self.artifacts.get(sha) is None for sha in wanted):
                self._changed.clear()
                await self._changed.wait()

    async def _fetch(self, path: str) -> bytes:
        self.fetched.append(path.rpartition("/")[2])
        return FILES[self.fetched[-1]]

    async def _now(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return work(*arguments)


@pytest.fixture
async def loaded(tmp_path: Path) -> AsyncIterator[Loaded]:
    loaded = Loaded(tmp_path)
    yield loaded
    await loaded.artifacts.close()


def kept(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


async def test_files_that_nobody_wants_any_more_go_when_others_come(loaded: Loaded, tmp_path: Path):
    await loaded.want(ONE, TWO)
    assert kept(tmp_path) == {ONE, TWO}
    await loaded.want(TWO, THREE)
    assert kept(tmp_path) == {TWO, THREE}
    assert loaded.artifacts.get(ONE) is None


async def test_what_is_kept_is_not_fetched_again_unless_it_is_damaged(loaded: Loaded, tmp_path: Path):
    await loaded.want(ONE, TWO)
    (tmp_path / TWO).write_bytes(b"tw")
    again = Loaded(tmp_path)
    await again.want(ONE, TWO)
    assert again.fetched == [TWO]
    assert again.artifacts.get(TWO) == "two"
    await again.artifacts.close()
