from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from gpu_agent.host.apart import Apart, NoAnswer


async def test_it_returns_and_raises_what_the_call_does():
    apart = Apart[int]("test")
    assert await apart.run(lambda: 7, 10) == 7
    with pytest.raises(ZeroDivisionError):
        await apart.run(lambda: 1 // 0, 10)


async def test_a_call_that_does_not_return_is_given_up_and_none_is_begun_beside_it():
    apart, come_back = Apart[bool]("test"), threading.Event()
    with pytest.raises(NoAnswer, match=r"within 0\.01 s"):
        await apart.run(come_back.wait, 0.01)
    begun = time.monotonic()
    with pytest.raises(NoAnswer):
        await apart.run(lambda: True, 60)
    assert time.monotonic() - begun < 10, "at once"
    come_back.set()
    async with asyncio.timeout(10):
        while True:
            try:
                assert await apart.run(come_back.wait, 10)
            except NoAnswer:
                await asyncio.sleep(0.001)
            else:
                break


async def test_a_call_that_was_only_left_is_waited_for_by_the_next():
    apart, come_back = Apart[bool]("test"), threading.Event()
    first = asyncio.create_task(apart.run(come_back.wait, 60))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    second = asyncio.create_task(apart.run(lambda: True, 60))
    await asyncio.sleep(0)
    assert not second.done()
    come_back.set()
    assert await second
    # One that does not come back is given up by those after it, too.
    third = asyncio.create_task(apart.run(threading.Event().wait, 60))
    await asyncio.sleep(0)
    third.cancel()
    await asyncio.gather(third, return_exceptions=True)
    for _ in range(2):
        with pytest.raises(NoAnswer):
            await apart.run(lambda: True, 0.01)


def test_a_process_ends_though_a_call_has_not_returned():
    code = """
import asyncio, threading
from gpu_agent.host.apart import Apart, NoAnswer
async def main():
    try:
        await Apart("test").run(threading.Event().wait, 0.01)
    except NoAnswer:
        print("given up")
asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout == "given up\n"
