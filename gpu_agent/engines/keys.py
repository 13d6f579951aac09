"""The API keys that this node's policy names for its engines, read from their files each time they are used."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpu_agent.policy import NodePolicy
from wire.files import read_bounded

_LIMIT_BYTES = 4096
# What a header can hold.
_KEY = re.compile(r"[\x21-\x7e]+")


class KeyUnusable(Exception):
    """The message names the file and no part of the key."""


class EngineKeys:
    """Each use reads anew, so that a key is changed without a restart of the agent."""

    def __init__(self, policy: NodePolicy) -> None:
        self._policy = policy
        # Of its own: a disk that hangs takes no thread that something else waits for.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="engine-keys")

    async def read(self, engine: str) -> str:
        """Empty for an engine without one. Raises: KeyUnusable. May wait for a disk; cancel it when that is enough."""
        file = self._policy.engine(engine).api_key_file
        if file is None:
            return ""
        return await asyncio.get_running_loop().run_in_executor(self._thread, _read, Path(file))

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


def _read(file: Path) -> str:
    try:
        key = read_bounded(file, _LIMIT_BYTES).decode("ascii").strip()
    except OSError as error:
        raise KeyUnusable(f"{file} cannot be read: {error.strerror}") from error
    except ValueError:
        key = ""
    if not _KEY.fullmatch(key):
        raise KeyUnusable(f"{file} must hold one key of printable characters, at most {_LIMIT_BYTES} bytes")
    return key
