from __future__ import annotations

import asyncio
import contextlib

from gateway.tasks import end


async def waits(begun: asyncio.Event, fails_on_the_way_out: bool) -> None:
    while True:
        with contextlib.suppress(OSError):
            try:
                begun.set()
                await asyncio.sleep(60)
            finally:
                if fails_on_the_way_out:
                    fails_on_the_way_out = False
                    raise ConnectionResetError


async def test_tasks_end_also_where_an_error_takes_the_place_of_the_cancellation():
    begun = [asyncio.Event(), asyncio.Event()]
    tasks = [asyncio.create_task(waits(event, fails)) for event, fails in zip(begun, (False, True), strict=True)]
    await asyncio.gather(*(event.wait() for event in begun))
    await asyncio.wait_for(end(*tasks), 10)
    assert all(task.cancelled() for task in tasks)
    await end(*tasks)
