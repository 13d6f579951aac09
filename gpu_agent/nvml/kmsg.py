"""What the kernel log says of GPUs. Pure: records in, sightings out.

Form of a record: Documentation/ABI/testing/dev-kmsg. Forms of the driver's lines, over its versions:
    NVRM: Xid (0000:03:00): 8, Channel 00000001
    NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
    NVRM: Xid (PCI:0000:05:00 GPU-I:05 GPU-CI:00): 31, pid=2, name=python, ...
    NVRM: Xid (PCI:0000:05:00.0): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 08 ...
    NVRM: GPU 0000:05:00.0: GPU has fallen off the bus.
    NVRM: The NVIDIA GPU 0000:05:00.0 (PCI ID: 10de:2335) installed in this system has fallen off the bus ...
    nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

# The kernel's longest record (CONSOLE_EXT_LOG_MAX): one read gives one record.
RECORD_LIMIT_BYTES = 8192
_HEADER = re.compile(rb"(\d{1,10}),(\d{1,20}),(\d{1,20}),[^;]{0,200};(.*)", re.DOTALL)
_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")
_PCI = r"(?:PCI:)?([0-9a-fA-F]{1,8}):([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})(?:\.[0-7])?"
_XID = re.compile(rf"NVRM: Xid \({_PCI}(?: GPU-I:(\d{{1,5}}))?[^)]{{0,64}}\): (\d{{1,5}})\b")
_SXID = re.compile(rf"nvidia-nvswitch\d{{1,4}}: SXid \({_PCI}\): (\d{{1,6}}), ([A-Za-z-]{{1,20}})")
# Between the GPU and the words, old drivers break the line and give the PCI id.
_FALLEN = re.compile(rf"NVRM: [^\n]{{0,40}}?GPU (?:at )?{_PCI}\b(?s:.{{0,200}}?)fallen off the bus")
_TEXT_CHARACTERS = 300

PciAddress = tuple[int, int, int]


@dataclass(frozen=True)
class Record:
    """One kernel log record. `at_microseconds` counts from boot."""

    sequence: int
    at_microseconds: int
    text: str


@dataclass(frozen=True)
class Sighting:
    """What one record says. `number` is the XID or SXid; None: the line has none, as when a GPU fell off the bus.

    `instance`: the MIG GPU instance that it is about; None: the whole GPU.
    """

    kind: Literal["xid", "sxid"]
    pci: PciAddress
    number: int | None
    fatal: bool
    text: str
    instance: int | None = None


def parse_pci(text: str) -> PciAddress | None:
    """Domain, bus and device of an address as NVML or the kernel writes it; None if it is none."""
    found = re.fullmatch(_PCI, text)
    return None if found is None else _address(found)


def show_pci(pci: PciAddress) -> str:
    domain, bus, device = pci
    return f"{domain:08X}:{bus:02X}:{device:02X}.0"


def parse_record(line: bytes) -> Record | None:
    """One record, without its line end; None for a continuation line or anything else."""
    found = _HEADER.fullmatch(line)
    if found is None:
        return None
    # The kernel escapes what is not printable ASCII, and the backslash itself.
    text = _ESCAPE.sub(lambda escape: bytes([int(escape[1], 16)]), found[4]).decode("utf-8", "replace")
    return Record(int(found[2]), int(found[3]), text)


def sighting(text: str) -> Sighting | None:
    """What a record's text says of a GPU or NVSwitch; None for nothing."""
    if found := _XID.search(text):
        instance = None if found[4] is None else int(found[4])
        text = text[:_TEXT_CHARACTERS]
        return Sighting("xid", _address(found), int(found[5]), fatal=False, text=text, instance=instance)
    if found := _SXID.search(text):
        return Sighting("sxid", _address(found), int(found[4]), found[5].lower() == "fatal", text[:_TEXT_CHARACTERS])
    if found := _FALLEN.search(text):
        return Sighting("xid", _address(found), None, fatal=True, text=text[:_TEXT_CHARACTERS])
    return None


def _address(found: re.Match[str]) -> PciAddress:
    return int(found[1], 16), int(found[2], 16), int(found[3], 16)
