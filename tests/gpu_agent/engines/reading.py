"""A metrics page as the agent reads it, in chunks as they may come."""

from __future__ import annotations

from pathlib import Path

from gpu_agent.engines.numbers import readings
from gpu_agent.engines.scan import Scan

DATA = Path(__file__).parent.parent / "data"
TEXT = "text/plain"


def read(page: bytes, kind: str = "vllm", media_type: str = TEXT, chunk_bytes: int = 2**16) -> dict[str, float]:
    """Values by name, a bucket's bound or a reason in brackets behind it."""
    scan = Scan(kind, media_type)
    for start in range(0, len(page), chunk_bytes):
        scan.feed(page[start : start + chunk_bytes])
    found = readings(kind, scan.end())
    return {f"{name}[{label[1]}]" if label else name: value for name, label, value in found}


def page_of(name: str) -> bytes:
    return (DATA / f"{name}-metrics.txt").read_bytes()
