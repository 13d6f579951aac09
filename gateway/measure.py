"""How long a prompt is, by the model's own tokenizer."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from msgspec import UNSET
from tokenizers import Tokenizer

from gateway import settings
from gateway.view import View
from policy.asks import Ask, token_counts
from wire.files import read_bounded, write_private
from wire.snapshot import Model

log = logging.getLogger("headworks.gateway.measure")
T = TypeVar("T")
MAX_ARTIFACT_BYTES = 64 * 1024 * 1024


class PromptSize(NamedTuple):
    """`source` is `tokenizer`, or `estimate` where the model has no tokenizer (yet): UTF-8 bytes ÷ 4, rounded up."""

    tokens: int
    source: str


class Measure:
    """Counts prompts. Tokenizers are artifacts, fetched once by SHA-256, verified, and kept on disk.

    A chat is measured as its texts and a fixed overhead a message: the engine's template is not run here, images
    and audio are not measured. Real usage replaces the measure when the request settles.
    """

    def __init__(self, artifacts_dir: Path, fetch: Callable[[str], Awaitable[bytes]]) -> None:
        self._dir, self._fetch = artifacts_dir, fetch
        self._tokenizers: dict[str, Tokenizer] = {}
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._counts: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._cache_size = settings.TOKEN_COUNT_CACHE.read()
        self._off_loop_characters = settings.TOKENIZE_OFF_LOOP_CHARACTERS.read()
        self._message_overhead = settings.MESSAGE_OVERHEAD_TOKENS.read()
        self._retry_seconds = settings.ARTIFACT_RETRY_SECONDS.read()
        # One thread: measuring may take a core, the others belong to the streams.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenize")

    def configure(self, view: View) -> None:
        """Begin to load tokenizers that a view names, and drop those it no longer names."""
        wanted = {model.tokenizer for model in view.snapshot.models.values() if model.tokenizer is not UNSET}
        for sha in self._tokenizers.keys() - wanted:
            del self._tokenizers[sha]
        for sha in self._loading.keys() - wanted:
            self._loading.pop(sha).cancel()
        for sha in wanted - self._tokenizers.keys() - self._loading.keys():
            self._loading[sha] = asyncio.create_task(self._load(sha), name=f"tokenizer {sha[:12]}")

    async def close(self) -> None:
        for task in self._loading.values():
            task.cancel()
        await asyncio.gather(*self._loading.values(), return_exceptions=True)
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def prompt_tokens(self, ask: Ask, model: Model) -> PromptSize:
        """Tokens of the whole prompt: texts, token ids as they came, and the template's overhead."""
        tokenizer = None if model.tokenizer is UNSET else self._tokenizers.get(model.tokenizer)
        if tokenizer is None or model.tokenizer is UNSET:
            return PromptSize(ask.estimated_tokens(self._message_overhead), "estimate")
        total, unknown = ask.fixed_tokens(self._message_overhead), []
        for text in ask.texts:
            count = self._counts.get((model.tokenizer, text))
            if count is None:
                unknown.append(text)
            else:
                self._counts.move_to_end((model.tokenizer, text))
                total += count
        if unknown:
            counts = await self._count(tokenizer, unknown)
            total += sum(counts)
            for text, count in zip(unknown, counts, strict=True):
                self._remember(model.tokenizer, text, count)
        return PromptSize(total, "tokenizer")

    async def _count(self, tokenizer: Tokenizer, texts: list[str]) -> list[int]:
        if sum(map(len, texts)) <= self._off_loop_characters:
            return token_counts(tokenizer, texts)
        return await self._in_thread(token_counts, tokenizer, texts)

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def _remember(self, sha: str, text: str, count: int) -> None:
        # A text that is long enough to be measured off the loop would fill the memory of many short ones.
        if len(text) > self._off_loop_characters:
            return
        self._counts[sha, text] = count
        if len(self._counts) > self._cache_size:
            self._counts.popitem(last=False)

    async def _load(self, sha: str) -> None:
        while True:
            try:
                data = await self._read(sha)
                # In the thread for its system calls alone: from_buffer itself holds the GIL while it parses, so a new
                # tokenizer delays requests once, by about as long as its file takes to read as JSON.
                self._tokenizers[sha] = await self._in_thread(Tokenizer.from_buffer, data)
            except Exception as error:
                # The tokenizers library raises bare Exception; no file may end the process.
                log.warning("tokenizer %s is not usable, prompts are estimated: %s", sha[:12], error)
                await asyncio.sleep(self._retry_seconds)
            else:
                log.info("tokenizer %s is loaded", sha[:12])
                self._loading.pop(sha, None)
                return

    async def _read(self, sha: str) -> bytes:
        path = self._dir / sha
        kept = await self._in_thread(_kept, path, sha)
        if kept is not None:
            return kept
        data = await self._fetch(f"/api/v1/artifacts/{sha}")
        await self._in_thread(_keep, path, sha, data)
        return data


def _kept(path: Path, sha: str) -> bytes | None:
    try:
        data = read_bounded(path, MAX_ARTIFACT_BYTES)
    except FileNotFoundError:
        return None
    if hashlib.sha256(data).hexdigest() == sha:
        return data
    log.warning("the file of tokenizer %s is damaged; it is fetched again", sha[:12])
    return None


def _keep(path: Path, sha: str, data: bytes) -> None:
    """Raises: ValueError for other bytes than asked for. A full disk is no reason to go without a tokenizer."""
    if hashlib.sha256(data).hexdigest() != sha:
        raise ValueError("the control plane sent bytes of another SHA-256")
    try:
        write_private(path, data)
    except OSError as error:
        log.warning("tokenizer %s is not kept on disk: %s", sha[:12], error)
