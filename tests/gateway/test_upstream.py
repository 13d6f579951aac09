"""The client that engines are asked by: answers of many chunks, and readers that are slower than their engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.upstream import engine_session

CHUNK = b"data: " + b"x" * 2_000 + b"\n\n"
CHUNKS = 2_000
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@asynccontextmanager
async def engine(chunks: int) -> AsyncIterator[str]:
    """The address of a server that sends so many chunks as fast as they are taken."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD)
        for _ in range(chunks):
            writer.write(b"%x\r\n%s\r\n" % (len(CHUNK), CHUNK))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def test_an_answer_that_outruns_its_reader_is_held_back_and_comes_whole():
    async with engine(CHUNKS) as url, engine_session() as session:
        async with session.get(url) as response:
            # By now it is paused: what is on its way is far more than what is read ahead.
            async with asyncio.timeout(10):
                while not response.content._protocol._reading_paused:  # noqa: ASYNC110 - nothing tells of it
                    await asyncio.sleep(0.001)
            size = 0
            async for data in response.content.iter_any():
                size += len(data)
        assert size == CHUNKS * len(CHUNK)
