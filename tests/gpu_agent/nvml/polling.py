"""Waiting for a condition of a running collector, reading it all the while as the agent does."""

from __future__ import annotations

import asyncio

INTERVAL_SECONDS = 0.2


async def read_until(watched, condition, what, timeout_seconds=15.0):
    """Read once an interval until `condition(readings)` holds; the readings for which it does."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_seconds
    while True:
        before = loop.time()
        readings = await watched.collector.read()
        if condition(readings):
            return readings
        assert loop.time() < deadline, f"waited for {what}; last: {readings}"
        await asyncio.sleep(max(0, before + INTERVAL_SECONDS - loop.time()))


def states(readings):
    return [gpu.state for gpu in readings.gpus]
