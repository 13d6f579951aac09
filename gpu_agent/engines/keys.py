"""The API keys that this node's policy names for its engines, read from their files each time they are used."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from functools import partial
from pathlib import Path

from gpu_agent.host.apart import Apart, NoAnswer
from gpu_agent.policy import NodePolicy
from wire.files import read_bounded

_LIMIT_BYTES = 4096
_READ_SECONDS = 5.0
# What a header can hold.
_KEY = re.compile(r"[\x21-\x7e]+")


class KeyUnusable(Exception):
    """The message names the file and no part of the key."""


class EngineKeys:
    """Each use reads anew, so that a key is changed without a restart of the agent."""

    def __init__(self, policy: NodePolicy) -> None:
        self._policy = policy
        # By engine: a disk that hangs holds up no key but those that lie on it.
        self._disks: defaultdict[str, Apart[str]] = defaultdict(lambda: Apart("engine-key"))
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def read(self, engine: str) -> str:
        """Empty for an engine without one. Raises: KeyUnusable, after some seconds for a disk that does not answer."""
        file = self._policy.engine(engine).api_key_file
        if file is None:
            return ""
        # A probe and an act may ask at once.
        async with self._turns[engine]:
            try:
                return await self._disks[engine].run(partial(_read, Path(file)), _READ_SECONDS)
            except NoAnswer as error:
                raise KeyUnusable(f"{file} cannot be read: {error}") from error

    def close(self) -> None:
        pass


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
