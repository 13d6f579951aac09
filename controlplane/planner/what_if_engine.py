"""A real engine that is tuned: whether it serves, what its own page says, and how it is started anew."""

from __future__ import annotations

import http.client
import ipaddress
import os
import shlex
import subprocess
import time
import urllib.request
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

from controlplane.planner.what_if_tools import ToolTrouble
from wire.engine_pages.numbers import capacity_tokens, readings
from wire.engine_pages.scan import NotMetrics, Scan

PROBE_SECONDS = 2.0
PAGE_MAX_BYTES = 4 * 2**20
# Where the engine's page does not tell.
KV_CAPACITY_TOKENS = 400_000


class Told(NamedTuple):
    """What the engine's own page says; preemptions since its start."""

    preemptions: float = 0.0
    kv_capacity_tokens: int = KV_CAPACITY_TOKENS


def is_loopback(url: str) -> bool:
    """Whether the address is of this machine, so that a load test takes nothing from anybody."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def told_by(url: str) -> Told:
    """Of vLLM's page; the defaults where there is none that can be read."""
    page = _page(f"{url}/metrics")
    if page is None:
        return Told()
    scan = Scan("vllm", "text/plain")
    try:
        scan.feed(page)
        found = readings("vllm", scan.end())
    except NotMetrics:
        return Told()
    preemptions = sum(reading.value for reading in found if reading.name == "preemptions_total")
    return Told(preemptions, capacity_tokens(found) or KV_CAPACITY_TOKENS)


def restart(command: str, url: str, settings: dict[str, int], limit_seconds: float) -> str | None:
    """Restart the engine with these settings and wait until it serves; why it does not.

    `command`: with `{max_num_seqs}` and `{max_num_batched_tokens}` for the values. No shell reads it; it returns once
    the old engine has stopped. Raises ToolTrouble where it cannot be run.
    """
    environment = {**os.environ, **{f"HEADWORKS_{name.upper()}": str(value) for name, value in settings.items()}}
    try:
        words = filled(command, settings)
        done = subprocess.run(words, env=environment, check=False, timeout=limit_seconds, stdin=subprocess.DEVNULL)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise ToolTrouble(f"--restart-command: {error}") from error
    if done.returncode:
        return f"the restart command ended with status {done.returncode}"
    return None if _within(limit_seconds, lambda: serves(url)) else f"it did not serve within {limit_seconds:.0f} s"


def filled(command: str, settings: dict[str, int]) -> list[str]:
    """The command's words, with the values put in. Raises ValueError where its quotes are not closed."""
    words = shlex.split(command)
    for name, value in settings.items():
        words = [word.replace(f"{{{name}}}", str(value)) for word in words]
    return words


def serves(url: str) -> bool:
    return _page(f"{url}/v1/models") is not None


def _within(limit_seconds: float, holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + limit_seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(PROBE_SECONDS / 4)
    return True


def _page(url: str) -> bytes | None:
    try:
        with urllib.request.urlopen(url, timeout=PROBE_SECONDS) as answer:  # noqa: S310 - http or https, as checked
            page: bytes = answer.read(PAGE_MAX_BYTES)
            return page
    except (OSError, http.client.HTTPException):
        return None
