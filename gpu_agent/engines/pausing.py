"""Is a vLLM paused? It says so in its development mode alone.

`/is_sleeping` is of no use beside it: vLLM 0.32 answers true there for an engine that is only paused. Its metrics page
tells who sleeps.
"""

from __future__ import annotations

import msgspec

from gpu_agent.engines.pages import EnginePages, PageUnavailable
from wire.messages import UNREADABLE

_PATH = "/is_paused"
KINDS = frozenset({"vllm"})
# Without the mode, and as vLLM said so before it had the path.
_NO_SUCH_PATH = (404, 405)


class NeverSaid(Exception):
    """This run of the engine has no such page."""


class _Page(msgspec.Struct):
    is_paused: bool


async def is_paused(pages: EnginePages, url: str, deadline: float) -> bool | None:
    """None where it cannot be told now: the core itself answers, so a hung one does not. Raises: NeverSaid."""
    try:
        return msgspec.json.decode(await pages.document(url + _PATH, deadline), type=_Page).is_paused
    except PageUnavailable as error:
        if error.status in _NO_SUCH_PATH:
            raise NeverSaid from error
    except UNREADABLE:
        pass
    return None
