"""The API keys that this node's policy names for its engines, read from their files each time they are used."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

from gpu_agent.engines.addresses import ForeignUrl, check_url
from gpu_agent.host.apart import Apart, NoAnswer
from gpu_agent.policy import NodePolicy
from wire.files import read_bounded

_LIMIT_BYTES = 4096
_READ_SECONDS = 5.0
# What a header can hold.
_KEY = re.compile(r"[\x21-\x7e]+")


class KeyUnusable(Exception):
    """The message says why, and holds no part of the key."""


class Key(NamedTuple):
    """`text`: empty for none. `here_only`: no other machine may get it."""

    text: str
    here_only: bool


class EngineKeys:
    """Each use reads anew, so that a key is changed without a restart of the agent."""

    def __init__(self, policy: NodePolicy) -> None:
        self._policy = policy
        # By engine: a disk that hangs holds up no key but those that lie on it.
        self._disks: defaultdict[str, Apart[str]] = defaultdict(lambda: Apart("engine-key"))
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def read(self, engine: str, url: str) -> Key:
        """For the engine at `url`, where the control plane says that it is.

        Raises: KeyUnusable, after some seconds for a disk that does not answer.
        """
        policy = self._policy.engine(engine)
        file, here_only = policy.api_key_file, policy.url is None
        if file is None:
            return Key("", here_only)
        try:
            await check_url(url, policy.url)
        except ForeignUrl as error:
            raise KeyUnusable(str(error)) from error
        # A probe and an act may ask at once.
        async with self._turns[engine]:
            try:
                text = await self._disks[engine].run(partial(_read, Path(file)), _READ_SECONDS)
            except NoAnswer as error:
                raise KeyUnusable(f"{file} cannot be read: {error}") from error
        return Key(text, here_only)


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
