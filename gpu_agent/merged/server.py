"""Serves the merged page: `/metrics`, and `/healthz` for a supervisor."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from gpu_agent.engines.pages import EnginePages, PageUnavailable
from gpu_agent.merged.page import CONTENT_TYPE, BadPage, checked, merged_page
from gpu_agent.merged.vllm_files import FilesUnavailable, VllmMetrics, read_files

log = logging.getLogger("headworks.merged")
_VLLM, _TRITON = "vllm", "triton"


@dataclass(frozen=True)
class Options:
    """One field a setting; gpu_agent/merged/settings.py says what each is for."""

    multiproc_dir: Path
    triton_url: str
    timeout_seconds: float
    page_limit_bytes: int
    files_limit: int


class MergedPage:
    """Reads both sources for each page; one that is away leaves the other's part. `close` it at the end."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._pages = EnginePages(timeout_seconds=options.timeout_seconds, limit_bytes=options.page_limit_bytes)
        # One page at a time: a scraper that repeats itself costs no more than one.
        self._making = asyncio.Lock()
        self._reading: asyncio.Task[VllmMetrics | None] | None = None
        self._problems: dict[str, str] = {}

    async def close(self) -> None:
        await self._pages.close()

    def application(self) -> web.Application:
        app = web.Application(client_max_size=1024)
        app.add_routes([web.get("/metrics", self._metrics), web.get("/healthz", self._healthz)])
        return app

    async def _metrics(self, request: web.Request) -> web.Response:
        async with self._making:
            return web.Response(body=await self._page(), headers={"Content-Type": CONTENT_TYPE})

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _page(self) -> bytes:
        vllm, triton = await asyncio.gather(self._vllm_in_time(), self._read_triton())
        families, skipped = (vllm.families, vllm.skipped) if vllm else ([], 0)
        sources = {_VLLM: bool(families), _TRITON: bool(triton)}
        return await asyncio.to_thread(merged_page, families, triton, sources=sources, skipped_files=skipped)

    async def _vllm_in_time(self) -> VllmMetrics | None:
        """A disk that hangs holds one thread, however many pages are asked for meanwhile."""
        # One that ended after its deadline has numbers of an unknown age.
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(asyncio.to_thread(self._read_vllm))
        await asyncio.wait({self._reading}, timeout=self._options.timeout_seconds)
        if not self._reading.done():
            self._say(_VLLM, f"{self._options.multiproc_dir} could not be read in time: is it on a local disk?")
            return None
        return self._reading.result()

    def _read_vllm(self) -> VllmMetrics | None:
        options = self._options
        try:
            found = read_files(
                options.multiproc_dir, files_limit=options.files_limit, limit_bytes=options.page_limit_bytes
            )
        except FilesUnavailable as error:
            self._say(_VLLM, str(error))
            return None
        self._say(_VLLM, f"{found.skipped} files cannot be read and are left out" if found.skipped else "")
        return found

    async def _read_triton(self) -> str:
        """Triton's page; empty where there is none."""
        try:
            page = await self._pages.read(self._options.triton_url, self._pages.deadline())
            text = await asyncio.to_thread(checked, page.decode())
        except (PageUnavailable, UnicodeDecodeError, BadPage) as error:
            self._say(_TRITON, f"{self._options.triton_url}: {error}")
            return ""
        self._say(_TRITON, "")
        return text

    def _say(self, source: str, problem: str) -> None:
        """One line a change of state."""
        if problem != self._problems.get(source, ""):
            log.warning("%s: %s", source, problem) if problem else log.info("%s gives its part again", source)
        self._problems[source] = problem


async def serve(options: Options, host: str, port: int, stop: asyncio.Event) -> None:
    """Serve until `stop` is set. Raises: OSError where the address cannot be taken."""
    page = MergedPage(options)
    runner = web.AppRunner(page.application(), access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        log.info("the merged page is at http://%s:%d/metrics", *runner.addresses[0][:2])
        await stop.wait()
    finally:
        await runner.cleanup()
        await page.close()
