"""Background tasks that end when they are told to."""

from __future__ import annotations

import asyncio

_AGAIN_SECONDS = 0.2


async def end(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks until they have ended.

    Once may not do: where a client fails while it is closed on the way out, its error takes the place of the
    cancellation, and a task that goes on after such errors goes on.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_AGAIN_SECONDS)
