"""Two metrics pages as one, no name twice. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_NAME = re.compile(r"(?:# (?:HELP|TYPE) )?([a-zA-Z_:][a-zA-Z0-9_:]*)")


class BadPage(ValueError):
    """Triton's page is no metrics page; the message says where."""


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def checked(text: str) -> str:
    """A metrics page in Prometheus' text format as it is. Raises: BadPage."""
    try:
        families = list(text_string_to_metric_families(text))
    except (ValueError, LookupError) as error:
        raise BadPage(f"what Triton answers is no metrics page: {error}") from error
    if not families:
        raise BadPage("Triton's page has no metrics: is it started with --allow-metrics=true?")
    return text


def merged_page(vllm: Iterable[Metric], triton: str, *, sources: dict[str, bool], skipped_files: int) -> bytes:
    """vLLM's families, then Triton's page without the names that vLLM has, then what the page itself tells.

    Triton's vLLM backend gives some of vLLM's metrics anew, in other buckets: vLLM's own hold. `triton`: a page that
    `checked` has passed, or nothing.
    """
    families = list(vllm)
    taken = set(_names(families))
    rest = "".join(line + "\n" for line in triton.split("\n") if line and _name(line) not in taken)
    return _exposed(families) + rest.encode() + _exposed(_own(sources, skipped_files))


def _names(families: Iterable[Metric]) -> Iterator[str]:
    """Every name that stands on a page for these families, in comments and in samples."""
    for family in families:
        yield f"{family.name}_total" if family.type == "counter" else family.name
        yield from (sample.name for sample in family.samples)


def _name(line: str) -> str | None:
    match = _NAME.match(line)
    return match[1] if match else None


def _own(sources: dict[str, bool], skipped_files: int) -> list[Metric]:
    up = GaugeMetricFamily("headworks_merged_source_up", "1 while this source gives its part", labels=["source"])
    for source, works in sources.items():
        up.add_metric([source], float(works))
    skipped = GaugeMetricFamily("headworks_merged_skipped_files", "vLLM's files that cannot be read", skipped_files)
    return [up, skipped]


def _exposed(families: Iterable[Metric]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    return generate_latest(registry)
