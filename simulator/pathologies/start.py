"""How an engine comes up, and how it goes down for want of memory: in the words of vLLM's log."""

from __future__ import annotations

import asyncio
import logging
import os

log = logging.getLogger("simulator.engine")
# A model of 140 GB from a disk on the network: most of the time is reading (seed 1, section 18).
_WEIGHTS_SHARE, _COMPILE_SHARE, _GRAPHS_SHARE = 0.6, 0.25, 0.15
# What an eager engine does without: nothing is compiled, no graph is captured.
_EAGER_SHARE = _WEIGHTS_SHARE


async def start_up(seconds: float, version: str, *, eager: bool) -> None:
    """Take as long as the phases of a start take, and tell each as vLLM does. 0: at once, without phases."""
    log.info("vLLM API server version %s", version)
    if not seconds:
        return
    await asyncio.sleep(seconds * _WEIGHTS_SHARE)
    log.info("Loading weights took %.2f seconds", seconds * _WEIGHTS_SHARE)
    if eager:
        log.info("init engine (profile, create kv cache, warmup model) took %.2f seconds", seconds * _EAGER_SHARE)
        return
    await asyncio.sleep(seconds * _COMPILE_SHARE)
    log.info("torch.compile takes %.2f s in total", seconds * _COMPILE_SHARE)
    await asyncio.sleep(seconds * _GRAPHS_SHARE)
    log.info("Graph capturing finished in %.0f secs, took 0.62 GiB", seconds * _GRAPHS_SHARE)
    log.info("init engine (profile, create kv cache, warmup model) took %.2f seconds", seconds)


def run_out_of_memory() -> None:
    """End the process as a failed allocation of CUDA does, with memory free beside it (seed 1, section 3)."""
    log.error(
        "EngineCore encountered a fatal error: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. "
        "GPU 0 has a total capacity of 140.40 GiB of which 15.02 GiB is free. If reserved but unallocated memory is "
        "large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
    )
    logging.shutdown()
    os._exit(1)
