"""NVLink: which links are up, what went over them, and errors."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gpu_agent.nvml.parts.values import ALL_LINKS, field_value, field_values
from gpu_agent.nvml.source import Part

_LINK_COUNT = 91
_DATA_TX_KIBIBYTES, _DATA_RX_KIBIBYTES = 138, 139
_KIBIBYTE = 1024
_DIRECTIONS = 2
# A total of the GPU, and the count of each link by which newer parts tell it, where they do.
_ERRORS = {
    "nvlink_crc_flit_errors": (38, 163),
    "nvlink_crc_data_errors": (45, None),
    "nvlink_replay_errors": (52, 161),
    "nvlink_recovery_errors": (59, 162),
}


def link_count(nvml: Any, handle: Any) -> int:
    """Links that the GPU has, up or down; 0 where it knows no NVLink. Raises: NVMLError."""
    (count,) = field_values(nvml, handle, [(_LINK_COUNT, 0)])
    most: int = nvml.NVML_NVLINK_MAX_LINKS
    return min(count or 0, most)


def links_up(nvml: Any, handle: Any) -> list[Part]:
    parts: list[Part] = []
    for link in range(link_count(nvml, handle)):
        try:
            parts.append(("nvlink_up", [str(link)], int(bool(nvml.nvmlDeviceGetNvLinkState(handle, link)))))
        except nvml.NVMLError:
            # A link that this board does not use.
            continue
    return parts


def link_bytes(nvml: Any, handle: Any) -> list[Part]:
    sent, received = field_values(nvml, handle, [(_DATA_TX_KIBIBYTES, ALL_LINKS), (_DATA_RX_KIBIBYTES, ALL_LINKS)])
    return [
        ("nvlink_bytes", [direction], kibibytes * _KIBIBYTE)
        for direction, kibibytes in (("tx", sent), ("rx", received))
        if kibibytes is not None
    ]


class Traffic:
    """Bytes over all links of one GPU, and how many a second since the reading before. Of one thread."""

    def __init__(self, read_bytes: Callable[[Any], list[Part]], clock: Callable[[], float] = time.monotonic) -> None:
        """`read_bytes` gives the parts of `link_bytes`. `clock`: seconds, without jumps."""
        self._read_bytes, self._clock = read_bytes, clock
        self._before: tuple[float, float] | None = None

    def read(self, gpu: Any) -> list[Part]:
        """No rate at the first reading, of one direction alone, and where the driver began to count anew."""
        counted = self._read_bytes(gpu)
        if len(counted) < _DIRECTIONS:
            self._before = None
            return counted
        now = self._clock(), float(sum(number for _, _, number in counted))
        before, self._before = self._before, now
        if before is None or now[0] <= before[0] or now[1] < before[1]:
            return counted
        return [*counted, ("nvlink_bytes_per_second", [], (now[1] - before[1]) / (now[0] - before[0]))]


def error_calls(nvml: Any) -> list[tuple[str, Callable[[Any], int]]]:
    """A field's name, and the call that counts those errors of all links."""

    def counter(total: int, of_link: int | None) -> Callable[[Any], int]:
        def count(handle: Any) -> int:
            try:
                return field_value(nvml, handle, total)
            except nvml.NVMLError_NotSupported:
                if of_link is None:
                    raise
                links = [(of_link, link) for link in range(link_count(nvml, handle))]
                told = [count for count in field_values(nvml, handle, links) if count is not None]
                if not told:
                    raise
                return sum(told)

        return count

    return [(name, counter(total, of_link)) for name, (total, of_link) in _ERRORS.items()]
