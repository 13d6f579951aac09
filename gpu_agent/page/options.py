"""Where the agent's own pages are, and who may read them."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpu_agent import settings


@dataclass(frozen=True)
class PageOptions:
    """`token`: of /metrics; empty: none is asked for."""

    host: str
    port: int
    token: str = field(default="", repr=False)

    @classmethod
    def from_settings(cls) -> PageOptions | None:
        """None where no page is wanted."""
        listen = settings.LISTEN.read()
        return None if listen is None else cls(*listen, token=settings.LISTEN_TOKEN.read())
