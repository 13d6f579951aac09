"""An external metrics server that takes everything: `python -m bench.support.metrics_sink PORT`.

Every POST is answered with 204; a GET with how many there were.
"""

from __future__ import annotations

import asyncio
import sys

_taken = 0


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    global _taken
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            _, _, length = head.partition(b"content-length:")
            if length:
                await reader.readexactly(int(length.split(b"\r\n", 1)[0]))
            if head.startswith(b"post"):
                _taken += 1
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            else:
                said = str(_taken).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), limit=1 << 20)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
