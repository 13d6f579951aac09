"""What this node knows of models' files: looked at by size every now and then, read when that is asked for."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

import aiohttp

from gpu_agent.host.apart import Apart, NoAnswer
from gpu_agent.model_files.ledger import Asked, Ledger
from gpu_agent.model_files.look import Found, look
from gpu_agent.model_files.read import Stopped, read_files
from wire.files import read_bounded, write_private
from wire.manifest import BadManifest, Manifest, read_manifest
from wire.messages import ModelFilesReport
from wire.target import TargetRefused

log = logging.getLogger("headworks.agent.model_files")
_MANIFEST_LIMIT_BYTES = 16 << 20
# A stat of each file; a network disk takes milliseconds for one.
_LOOK_SECONDS = 60.0
_ANSWER_SECONDS = 60.0
_DETAIL_CHARACTERS = 2000


class FilesUnknown(Exception):
    """Nothing can be said of the files; the message says why."""


class ModelFiles:
    """`get` asks the control plane for a path. `on_change` is called when there is something else to report."""

    def __init__(self, state_dir: Path, get: Callable[[str], Awaitable[bytes]], on_change: Callable[[], None]) -> None:
        self._folder, self._get, self._on_change = state_dir / "manifests", get, on_change
        self._ledger = Ledger(state_dir / "model-files.json")
        self._reports: dict[Asked, ModelFilesReport] = {}
        self._manifests: dict[str, Manifest] = {}
        self._looking: Apart[Found] = Apart("model-files-look")
        self._reading: Apart[None] = Apart("model-files-read")
        self._turn = asyncio.Lock()

    def reports(self) -> list[ModelFilesReport]:
        return [self._reports[asked] for asked in sorted(self._reports)]

    async def keep_looking(self) -> NoReturn:
        """At every folder that was asked about, for as long as it stands in the ledger."""
        while True:
            for asked in self._ledger.asked:
                try:
                    await self.look(asked)
                except FilesUnknown as error:
                    log.warning("the model files in %s cannot be looked at: %s", asked.folder, error)
            await asyncio.sleep(_LOOK_SECONDS)

    @property
    def lock_file(self) -> Path:
        """Held by whoever fetches."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return self._folder / "fetch.lock"

    def manifest_file(self, sha256: str) -> Path:
        return self._folder / f"{sha256}.json"

    async def look(self, asked: Asked) -> Found:
        """By sizes, and by what was read before. Raises: FilesUnknown."""
        manifest = await self.manifest(asked.manifest)
        # One at a time: the thread takes no second call.
        async with self._turn:
            try:
                call = partial(look, Path(asked.folder), manifest, self._ledger)
                found = await self._looking.run(call, _ANSWER_SECONDS)
            except (OSError, NoAnswer) as error:
                raise FilesUnknown(f"{asked.folder}: {error}") from error
        self._take(asked, manifest, found)
        return found

    async def read(self, asked: Asked, limit_seconds: float, told: Callable[[int], None]) -> Found:
        """Read what changed since it was read; `told` gets the share that is, in per mille. Raises: FilesUnknown."""
        found, manifest = await self.look(asked), await self.manifest(asked.manifest)
        to_read_bytes = max(1, sum(manifest.files[path].size_bytes for path in found.unread))
        stopping, loop = threading.Event(), asyncio.get_running_loop()

        def tell(read_bytes: int) -> None:
            loop.call_soon_threadsafe(told, min(1000, read_bytes * 1000 // to_read_bytes))

        try:
            call = partial(read_files, Path(asked.folder), found.unread, self._ledger, stopping, tell)
            await self._reading.run(call, limit_seconds)
        except (OSError, NoAnswer, Stopped) as error:
            raise FilesUnknown(f"{asked.folder}: {error or 'the reading was ended'}") from error
        finally:
            # Also when the act is given up: the thread ends after its next piece.
            stopping.set()
        return await self.look(asked)

    def remember(self, asked: Asked) -> None:
        """Look at this folder from now on."""
        self._ledger.ask(asked)
        self._ledger.save()
        kept = set(self._ledger.asked)
        self._reports = {each: report for each, report in self._reports.items() if each in kept}

    async def manifest(self, sha256: str) -> Manifest:
        """From the disk, or from the control plane the first time. Raises: FilesUnknown."""
        if sha256 not in self._manifests:
            try:
                content = await asyncio.to_thread(self._kept, sha256) or await self._fetched(sha256)
                self._manifests[sha256] = await asyncio.to_thread(read_manifest, content)
            except (BadManifest, TargetRefused, aiohttp.ClientError, OSError) as error:
                raise FilesUnknown(f"manifest {sha256[:12]} cannot be had: {error}") from error
        return self._manifests[sha256]

    def _kept(self, sha256: str) -> bytes | None:
        try:
            content = read_bounded(self.manifest_file(sha256), _MANIFEST_LIMIT_BYTES)
        except (OSError, ValueError):
            return None
        return content if hashlib.sha256(content).hexdigest() == sha256 else None

    async def _fetched(self, sha256: str) -> bytes:
        content = await self._get(f"/api/v1/artifacts/{sha256}")
        if hashlib.sha256(content).hexdigest() != sha256:
            raise BadManifest("the control plane sent bytes of another SHA-256")
        await asyncio.to_thread(write_private, self.manifest_file(sha256), content)
        return content

    def _take(self, asked: Asked, manifest: Manifest, found: Found) -> None:
        report = ModelFilesReport(
            manifest=asked.manifest,
            folder=asked.folder,
            state=found.state,
            present_bytes=found.present_bytes,
            total_bytes=manifest.total_bytes,
            at_ms=time.time_ns() // 1_000_000,
            detail=found.detail[:_DETAIL_CHARACTERS],
        )
        before = self._reports.get(asked)
        self._reports[asked] = report
        if before is None or (before.state, before.present_bytes) != (report.state, report.present_bytes):
            self._on_change()
