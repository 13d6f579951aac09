"""The command as it runs, with real writers and a page in Triton's place."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer

from gpu_agent.merged import server
from gpu_agent.merged.server import MergedPage, Options
from gpu_agent.merged.vllm_files import read_files
from tests.gpu_agent.fake_engine import fake_engine
from tests.gpu_agent.merged.test_page import TRITON, by_sample
from tests.services import Process, free_port
from wire.engine_pages.numbers import readings
from wire.engine_pages.scan import Scan

TRITON_COUNT = b'\nnv_inference_count{model="llama",version="1"} 12\n'


@asynccontextmanager
async def serving(tmp_path, folder, triton_url, **environment):
    port = free_port()
    argv = [
        sys.executable, "-m", "gpu_agent.merged.cli", "--multiproc-dir", str(folder),
        "--triton-url", f"{triton_url}/metrics", "--listen", f"127.0.0.1:{port}",
    ]  # fmt: skip
    with Process(argv, log=tmp_path / "merged.log", environment=environment) as process:
        await asyncio.to_thread(process.wait_for_port, port)
        yield f"http://127.0.0.1:{port}", process


async def get(url):
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, response.headers["Content-Type"], await response.read()


@pytest.fixture
async def triton():
    async with fake_engine() as engine:
        engine.pages["/metrics"] = 200, TRITON.encode()
        yield engine


async def test_one_page_has_both_and_the_agent_reads_the_engine_from_it(vllm, triton, tmp_path):
    await asyncio.to_thread(vllm.start, "0", 4)
    async with serving(tmp_path, vllm.folder, triton.url) as (url, _):
        status, media_type, page = await get(f"{url}/metrics")
    assert (status, media_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    found = by_sample(page)
    assert found["vllm:generation_tokens_total", ("engine", "0"), ("model_name", "llama")] == 40
    assert TRITON_COUNT in page
    scan = Scan("vllm", "text/plain")
    scan.feed(page)
    numbers = {(reading.name, reading.label): reading.value for reading in readings("vllm", scan.end())}
    assert numbers["requests_running", ()] == 4
    assert numbers["iterations_total", ()] == 4


async def test_a_source_that_is_away_leaves_the_others_part_and_is_logged_once(vllm, triton, tmp_path):
    await asyncio.to_thread(vllm.start)
    triton.pages["/metrics"] = 500, b""
    async with serving(tmp_path, vllm.folder, triton.url) as (url, process):
        for _ in range(2):
            found = by_sample((await get(f"{url}/metrics"))[2])
            assert found["headworks_merged_source_up", ("source", "triton")] == 0
            assert found["headworks_merged_source_up", ("source", "vllm")] == 1
        triton.pages["/metrics"] = 200, b"<html>"
        assert by_sample((await get(f"{url}/metrics"))[2])["headworks_merged_source_up", ("source", "triton")] == 0
        triton.pages["/metrics"] = 200, TRITON.encode()
        assert by_sample((await get(f"{url}/metrics"))[2])["headworks_merged_source_up", ("source", "triton")] == 1
        log = process.log_tail()
    assert log.count("answered 500") == 1
    assert log.count("is no metrics page") == 1
    assert log.count("triton gives its part again") == 1


async def test_a_triton_that_hangs_holds_up_vllms_part_for_its_deadline_alone(vllm, triton, tmp_path):
    await asyncio.to_thread(vllm.start)
    triton.hung.add("/metrics")
    async with serving(tmp_path, vllm.folder, triton.url, HEADWORKS_MERGED_TIMEOUT_SECONDS="1") as (url, _):
        async with asyncio.timeout(10):
            status, _, page = await get(f"{url}/metrics")
        assert (await get(f"{url}/healthz"))[0] == 200
    assert status == 200
    assert by_sample(page)["headworks_merged_source_up", ("source", "vllm")] == 1


async def test_a_folder_that_hangs_holds_up_tritons_part_for_its_deadline_alone(vllm, triton, monkeypatch, caplog):
    """As on a disk that is away."""
    await asyncio.to_thread(vllm.start)
    back, reading = threading.Event(), []

    def hanging(*args, **limits):
        reading.append(args)
        assert back.wait(10)
        return read_files(*args, **limits)

    monkeypatch.setattr(server, "read_files", hanging)
    merged = MergedPage(Options(vllm.folder, f"{triton.url}/metrics", 1, 16 << 20, 100))
    try:
        async with asyncio.timeout(10), TestClient(TestServer(merged.application())) as client:

            async def page():
                return await (await client.get("/metrics")).read()

            for _ in range(2):
                without_vllm = await page()
                assert by_sample(without_vllm)["headworks_merged_source_up", ("source", "vllm")] == 0
                assert TRITON_COUNT in without_vllm
            assert caplog.text.count("could not be read in time") == 1
            assert len(reading) == 1, "one thread waits"
            back.set()
            while by_sample(await page())["headworks_merged_source_up", ("source", "vllm")] == 0:
                pass
    finally:
        back.set()
        await merged.close()


async def test_before_vllm_has_written_tritons_part_stands(triton, tmp_path):
    async with serving(tmp_path, tmp_path / "not-yet", triton.url) as (url, _):
        _, _, page = await get(f"{url}/metrics")
    assert by_sample(page)["headworks_merged_source_up", ("source", "vllm")] == 0
    assert TRITON_COUNT in page


async def test_processes_that_start_and_files_that_are_wiped_meanwhile_break_no_page(vllm, triton, tmp_path):
    async with serving(tmp_path, vllm.folder, triton.url) as (url, _):
        for place in range(5):
            process = await asyncio.to_thread(vllm.start, str(place), 1)
            pages = asyncio.gather(*(get(f"{url}/metrics") for _ in range(4)))
            process.kill()
            for file in vllm.folder.iterdir():
                file.unlink()
            assert {status for status, _, _ in await pages} == {200}


@pytest.mark.parametrize("listen", ["8003", "127.0.0.1:99999", "127.0.0.1:http"])
async def test_an_address_that_is_none_is_refused_by_name(tmp_path, listen):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gpu_agent.merged.cli", "--listen", listen, stderr=asyncio.subprocess.PIPE
    )
    _, error = await process.communicate()
    assert process.returncode == 2
    assert b"HEADWORKS_MERGED_LISTEN" in error
