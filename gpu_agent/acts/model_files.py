"""Fetch a model's files by the site's own command, and see whether they are whole."""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gpu_agent.acts.command import run_command
from gpu_agent.acts.outcome import failed, refused
from gpu_agent.acts.tools import NodeWork
from gpu_agent.model_files.keeper import FilesUnknown
from gpu_agent.model_files.ledger import Asked
from gpu_agent.model_files.look import Found
from wire.acts import FetchModel, ModelFilesRequest

_POLL_SECONDS = 1.0
_OUTPUT_CHARACTERS = 700
FOLDER, MANIFEST = "{folder}", "{manifest}"


async def check_model(work: NodeWork, request: ModelFilesRequest) -> str:
    """Raises: NotDone."""
    asked = await _asked(work, request)
    deadline = time.monotonic() + request.limit_seconds
    return await _read(work, asked, deadline)


async def fetch_model(work: NodeWork, request: FetchModel) -> str:
    """Two runs of the command never overlap: one that an agent left behind is waited for. Raises: NotDone."""
    asked = await _asked(work, request)
    deadline = time.monotonic() + request.limit_seconds
    async with _alone(work, deadline) as lock:
        found = await _found(work, asked)
        if found.lacking or found.wrong:
            await _run(work, asked, deadline, lock)
        return await _read(work, asked, deadline)


async def _asked(work: NodeWork, request: ModelFilesRequest) -> Asked:
    """Raises: NotDone."""
    folders = work.policy.model_folders
    if not await work.tools.on_disk("", lambda: _is_below(request.folder, folders)):
        allowed = ", ".join(folders) or "none"
        raise refused("path_not_allowed", f"{request.folder} is not below a folder of this node's policy: {allowed}")
    asked = Asked(request.manifest, request.folder)
    try:
        await work.tools.files.manifest(asked.manifest)
    except FilesUnknown as error:
        raise refused("no_manifest", str(error)) from error
    work.tools.files.remember(asked)
    return asked


def _is_below(folder: str, folders: list[str]) -> bool:
    """Links followed, as far as the path exists already."""
    inner = Path(folder).resolve()
    return any(Path(each).resolve() in inner.parents for each in folders)


async def _found(work: NodeWork, asked: Asked) -> Found:
    try:
        return await work.tools.files.look(asked)
    except FilesUnknown as error:
        raise failed("timeout", str(error)) from error


async def _read(work: NodeWork, asked: Asked, deadline: float) -> str:
    limit_seconds = max(1.0, deadline - time.monotonic())
    try:
        found = await work.tools.files.read(asked, limit_seconds, work.tell_progress)
    except FilesUnknown as error:
        raise failed("timeout", str(error)) from error
    if found.state != "whole":
        raise failed("files_differ", f"the files are {found.state}: {found.detail}")
    return f"whole: {found.present_bytes:,} bytes in {asked.folder}"


async def _run(work: NodeWork, asked: Asked, deadline: float, lock: int) -> None:
    manifest_file = str(work.tools.files.manifest_file(asked.manifest))
    command = [
        word.replace(FOLDER, asked.folder).replace(MANIFEST, manifest_file) for word in work.policy.fetch_command
    ]
    watching = asyncio.create_task(_tell_progress(work, asked))
    try:
        ran = await run_command(command, max(1.0, deadline - time.monotonic()), held=(lock,))
    except OSError as error:
        raise failed("command_failed", f"the fetch command cannot be run: {error}") from error
    finally:
        watching.cancel()
    if ran.status != 0:
        how = "was ended when its time was over" if ran.status is None else f"ended with status {ran.status}"
        said = f", and wrote last: {ran.output[-_OUTPUT_CHARACTERS:]}" if ran.output else ""
        raise failed("command_failed", f"the fetch command {how}{said}")


async def _tell_progress(work: NodeWork, asked: Asked) -> None:
    """By the bytes that are there. What cannot be looked at now may be later."""
    total_bytes = max(1, (await work.tools.files.manifest(asked.manifest)).total_bytes)
    while True:
        try:
            found = await work.tools.files.look(asked)
            work.tell_progress(found.present_bytes * 1000 // total_bytes)
        except FilesUnknown:
            pass
        await asyncio.sleep(_POLL_SECONDS)


@asynccontextmanager
async def _alone(work: NodeWork, deadline: float) -> AsyncIterator[int]:
    """A lock that the command inherits, so that it is held for as long as that runs, with or without an agent."""
    lock = os.open(work.tools.files.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not _locked(lock):
            if time.monotonic() >= deadline:
                raise failed("timeout", "a fetch that a former run of the agent began is still under way")
            await asyncio.sleep(_POLL_SECONDS)
        yield lock
    finally:
        os.close(lock)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
