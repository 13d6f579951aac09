"""Files of the control plane by their SHA-256: fetched once, verified, kept on disk, and read for what they are."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from wire.files import read_bounded, write_private

log = logging.getLogger("headworks.gateway.measure")
T = TypeVar("T")
MAX_ARTIFACT_BYTES = 64 * 1024 * 1024


class InThread(Protocol):
    """Runs work outside of the event loop."""

    def __call__(self, work: Callable[..., T], *arguments: Any) -> Awaitable[T]: ...


class Artifacts(Generic[T]):
    """Those of one kind. `read` makes of the bytes what is used of them; `on_change` hears when one comes or goes.

    `directory` is theirs alone: when one is kept there, those go that nobody wants any more.
    """

    def __init__(
        self,
        noun: str,
        read: Callable[[bytes], T],
        directory: Path,
        fetch: Callable[[str], Awaitable[bytes]],
        in_thread: InThread,
        retry_seconds: float,
        on_change: Callable[[], None],
    ) -> None:
        self._noun, self._make, self._dir, self._fetch = noun, read, directory, fetch
        self._in_thread, self._retry_seconds, self._on_change = in_thread, retry_seconds, on_change
        self._loaded: dict[str, T] = {}
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._wanted: set[str] = set()

    def get(self, sha: str) -> T | None:
        """None while it is not there (yet)."""
        return self._loaded.get(sha)

    def configure(self, wanted: set[str]) -> None:
        """Begin to load those that are new, and drop those that are no longer wanted."""
        self._wanted = wanted
        for sha in self._loaded.keys() - wanted:
            del self._loaded[sha]
        for sha in self._loading.keys() - wanted:
            self._loading.pop(sha).cancel()
        for sha in wanted - self._loaded.keys() - self._loading.keys():
            self._loading[sha] = asyncio.create_task(self._load(sha), name=f"{self._noun} {sha[:12]}")
        self._on_change()

    async def close(self) -> None:
        for task in self._loading.values():
            task.cancel()
        await asyncio.gather(*self._loading.values(), return_exceptions=True)

    async def _load(self, sha: str) -> None:
        while True:
            try:
                data = await self._bytes(sha)
                # In the thread for its system calls alone: a large tokenizer holds the GIL while it parses, so a new
                # one delays requests once, by about as long as its file takes to read as JSON.
                self._loaded[sha] = await self._in_thread(self._make, data)
            except Exception as error:
                # The tokenizers library raises bare Exception; no file may end the process.
                log.warning("%s %s is not usable, prompts are measured without: %s", self._noun, sha[:12], error)
                await asyncio.sleep(self._retry_seconds)
            else:
                log.info("%s %s is loaded", self._noun, sha[:12])
                self._loading.pop(sha, None)
                self._on_change()
                return

    async def _bytes(self, sha: str) -> bytes:
        path = self._dir / sha
        kept = await self._in_thread(self._kept, path, sha)
        if kept is not None:
            return kept
        data = await self._fetch(f"/api/v1/artifacts/{sha}")
        await self._in_thread(self._keep, path, sha, data)
        return data

    def _kept(self, path: Path, sha: str) -> bytes | None:
        try:
            data = read_bounded(path, MAX_ARTIFACT_BYTES)
        except FileNotFoundError:
            return None
        if hashlib.sha256(data).hexdigest() == sha:
            return data
        log.warning("the file of %s %s is damaged; it is fetched again", self._noun, sha[:12])
        return None

    def _keep(self, path: Path, sha: str, data: bytes) -> None:
        """Raises: ValueError for other bytes than asked for. A full disk is no reason to go without."""
        if hashlib.sha256(data).hexdigest() != sha:
            raise ValueError("the control plane sent bytes of another SHA-256")
        try:
            write_private(path, data)
            for kept in self._dir.iterdir():
                if kept.name not in self._wanted:
                    kept.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s %s is not kept on disk: %s", self._noun, sha[:12], error)
