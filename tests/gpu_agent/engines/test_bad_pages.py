"""Metrics pages that do harm if they are trusted: too long, too slow, in another form. Each is read over real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from gpu_agent.engines.look import Look, look_at
from gpu_agent.engines.pages import DOCUMENT_BYTES, EnginePages, PageUnavailable
from tests.gpu_agent.fake_engine import VLLM_METRICS
from wire.snapshot import NodeEngine

LIMIT_BYTES = 4 * 2**20
# What one page may take at most: chunks under way, the line that is not ended, and what was found.
MEMORY_BYTES = 3 * 2**20
TEXT = b"Content-Type: text/plain; version=0.0.4\r\n"
RUNNING = b'vllm:num_requests_running{engine="0"} 3\n'

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def engine(answer: Answer) -> AsyncIterator[NodeEngine]:
    """A vLLM that is well but for its metrics page, which `answer` writes, head included."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            path = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1]
            if path == b"/metrics":
                await answer(writer)
            else:
                writer.write(b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"version":"0.32.0"}')
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield NodeEngine(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "vllm", "short", "llama")


async def look(answer: Answer, timeout_seconds: float = 20) -> Look:
    pages = EnginePages(timeout_seconds=timeout_seconds, limit_bytes=LIMIT_BYTES)
    try:
        async with engine(answer) as vllm:
            return await look_at(pages, "e1", vllm)
    finally:
        await pages.close()


def whole(body: bytes, head: bytes = TEXT, status: bytes = b"200 OK") -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 %b\r\nContent-Length: %d\r\n%b\r\n" % (status, len(body), head) + body)
        await writer.drain()

    return answer


def repeated(piece: bytes, size_bytes: int | None) -> Answer:
    """A body of that size, or without end, that is nothing but this piece; sent as fast as it is taken."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        length = b"" if size_bytes is None else b"Content-Length: %d\r\n" % size_bytes
        writer.write(b"HTTP/1.1 200 OK\r\n" + TEXT + length + b"\r\n")
        block = piece * (2**16 // len(piece))
        sent_bytes = 0
        while size_bytes is None or sent_bytes < size_bytes:
            writer.write(block)
            await writer.drain()
            sent_bytes += len(block)

    return answer


HUNDRED_MB = 100 * 10**6


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(repeated(b"# HELP x y\n", HUNDRED_MB), "answered more than", id="100 MB"),
        pytest.param(repeated(b"# HELP x y\n", None), "answered more than", id="without end"),
        pytest.param(repeated(b"x", HUNDRED_MB), "a line is longer than", id="a line of 100 MB"),
        pytest.param(repeated(b"vllm:prompt_tokens_total{a=", None), "a line is longer than", id="a line without end"),
    ],
)
async def test_a_page_that_is_too_long_is_given_up_and_takes_no_memory(answer, reason):
    await look(whole(VLLM_METRICS))
    tracemalloc.start()
    try:
        seen = await look(answer)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (seen.report.state, seen.numbers) == ("up", [])
    assert reason in str(seen.report.error)
    assert peak_bytes < MEMORY_BYTES


async def test_series_without_end_are_given_up_and_take_no_memory():
    page = b"".join(b'vllm:prompt_tokens_total{engine="%d"} 1\n' % place for place in range(60_000))
    seen = await look(whole(page))
    assert seen.numbers == []
    assert "too_many_samples" in str(seen.report.error)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(whole(VLLM_METRICS.decode().encode("utf-16")), "not_metrics", id="UTF-16"),
        pytest.param(
            whole(gzip.compress(VLLM_METRICS), TEXT + b"Content-Encoding: gzip\r\n"),
            "Content-Encoding 'gzip', which was not asked for",
            id="gzip",
        ),
        pytest.param(whole(gzip.compress(VLLM_METRICS)), "not_metrics", id="gzip that does not say so"),
        pytest.param(whole(b"<html></html>\n", b"Content-Type: text/html\r\n"), "the page is text/html", id="HTML"),
        pytest.param(whole(b"<html></html>\n"), "the page has no metric of vllm's", id="HTML that says it is text"),
        pytest.param(whole(VLLM_METRICS, b""), "the page is of no type", id="no type"),
        pytest.param(whole(b"", b"Location: /health\r\n", b"302 Found"), "answered 302", id="a redirect"),
        pytest.param(whole(RUNNING + RUNNING), "sample_twice", id="a series twice"),
        pytest.param(whole(VLLM_METRICS[:-1]), "cut_short", id="cut short"),
    ],
)
async def test_a_page_that_is_no_metrics_page_is_refused_by_name(answer, reason):
    seen = await look(answer)
    assert (seen.report.state, seen.report.version, seen.numbers) == ("up", "0.32.0", [])
    assert reason in str(seen.report.error)


async def test_a_page_that_ends_before_it_is_whole_is_none():
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + TEXT + b"Content-Length: 100000\r\n\r\n" + RUNNING)
        await writer.drain()

    seen = await look(answer)
    assert (seen.report.state, seen.numbers) == ("up", [])
    assert str(seen.report.error).startswith("/metrics: ")


async def test_letters_of_another_encoding_in_a_label_cost_nothing_else():
    seen = await look(whole(b'vllm:num_requests_running{model_name="\xe9t\xe9"} 3\n'))
    assert seen.numbers == [("requests_running", (), 3)]


@pytest.mark.parametrize("number", [b"NaN", b"+Inf", b"-Inf", b"-1"])
async def test_a_number_that_cannot_be_true_is_left_out_alone(number):
    seen = await look(whole(RUNNING + b"vllm:num_requests_waiting " + number + b"\n"))
    assert seen.numbers == [("requests_running", (), 3)]


async def test_a_page_in_many_small_chunks_is_read():
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + TEXT + b"Transfer-Encoding: chunked\r\n\r\n")
        for start in range(0, len(VLLM_METRICS), 100):
            chunk = VLLM_METRICS[start : start + 100]
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    assert (await look(answer)).numbers == (await look(whole(VLLM_METRICS))).numbers


async def test_a_page_that_trickles_ends_with_its_look():
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + TEXT + b"\r\n")
        while True:
            writer.write(RUNNING[:1])
            await writer.drain()
            await asyncio.sleep(0.01)

    begun_seconds = time.monotonic()
    seen = await look(answer, timeout_seconds=1)
    assert (seen.report.state, seen.report.error) == ("up", "/metrics: no answer in time")
    assert time.monotonic() - begun_seconds < 10


async def test_json_that_is_all_brackets_is_given_up_before_it_is_taken_apart(engine):
    """16 times its size in memory, at a page's limit."""
    engine.pages["/server_info"] = (200, b'{"a":[' + b"[]," * 1_300_000 + b"[]]}")
    pages = EnginePages(timeout_seconds=20, limit_bytes=LIMIT_BYTES)
    try:
        with pytest.raises(PageUnavailable, match=f"answered more than {DOCUMENT_BYTES} bytes"):
            await pages.document(f"{engine.url}/server_info", pages.deadline())
        assert len(await pages.read(f"{engine.url}/server_info", pages.deadline())) > DOCUMENT_BYTES
    finally:
        await pages.close()
