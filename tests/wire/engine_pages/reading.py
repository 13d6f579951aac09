"""A metrics page as agents and gateways read it, in chunks as they may come."""

from __future__ import annotations

from pathlib import Path

from wire.engine_pages.numbers import Reading, by_rank, readings
from wire.engine_pages.scan import Scan
from wire.engine_pages.served_model import of_served_model

DATA = Path(__file__).parent / "data"
TEXT = "text/plain"


def read(
    page: bytes, kind: str = "vllm", media_type: str = TEXT, chunk_bytes: int = 2**16, served_model: str = ""
) -> dict[str, float]:
    """Values by name, a bucket's bound or a reason in brackets behind it."""
    lines = scanned(page, kind, media_type, chunk_bytes).end()
    return _by_name(readings(kind, of_served_model(lines, served_model)))


def read_ranks(page: bytes, kind: str = "vllm") -> dict[str, dict[str, float]]:
    """The same of each data-parallel rank."""
    return {rank: _by_name(found) for rank, found in by_rank(kind, scanned(page, kind).end()).items()}


def scanned(
    page: bytes, kind: str = "vllm", media_type: str = TEXT, chunk_bytes: int = 2**16, own: tuple[str, ...] = ()
) -> Scan:
    scan = Scan(kind, media_type, own)
    for start in range(0, len(page), chunk_bytes):
        scan.feed(page[start : start + chunk_bytes])
    return scan


def _by_name(found: list[Reading]) -> dict[str, float]:
    return {f"{name}[{label[1]}]" if label else name: value for name, label, value in found}


def page_of(name: str) -> bytes:
    return (DATA / f"{name}-metrics.txt").read_bytes()
