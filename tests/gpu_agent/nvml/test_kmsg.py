from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_agent.nvml.kmsg import Record, parse_pci, parse_record, show_pci, sighting

# Lines as drivers of different ages wrote them.
LINES = [
    ("NVRM: Xid (0000:03:00): 8, Channel 00000001", "xid", (0, 3, 0), 8),
    ("NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp", "xid", (0, 0xCB, 0), 13),
    ("NVRM: Xid (PCI:0000:05:00.0): 109, pid=1797828, name=pt_main_thread, Ch 00000008", "xid", (0, 5, 0), 109),
    ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 31, pid=2, name=python", "xid", (0, 1, 0), 31),
    ("NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:01): 31, pid=2, name=python", "xid", (0, 1, 0), 31),
    ("NVRM: Xid (PCI:0018:01:00): 145, RLW_SRC_TRACK Nonfatal XC0 i0 Link 05", "xid", (0x18, 1, 0), 145),
    ("NVRM: Xid (PCI:0000:91:00): 79, pid=1, GPU has fallen off the bus.", "xid", (0, 0x91, 0), 79),
    ("NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.", "xid", (0, 0x91, 0), None),
    ("NVRM: GPU at 0000:03:00.0 has fallen off the bus.", "xid", (0, 3, 0), None),
    (
        "NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: (PCI ID: 10de:26b5) installed in this system has\n"
        "NVRM: fallen off the bus and is not responding to commands.",
        "xid", (0, 0xB3, 0), None,
    ),
    ("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress", "sxid", (0, 5, 0), 12028),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "pci", "number"), LINES)
def test_lines_of_every_driver_age_are_understood(text, kind, pci, number):
    seen = sighting(text)
    assert seen is not None
    assert (seen.kind, seen.pci, seen.number) == (kind, pci, number)


@pytest.mark.parametrize(("where", "instance"), [("", None), (" GPU-I:05", 5), (" GPU-I:11 GPU-CI:00", 11)])
def test_the_mig_instance_is_read_where_the_line_names_one(where, instance):
    seen = sighting(f"NVRM: Xid (PCI:0000:01:00{where}): 94, pid=2, name=python")
    assert seen is not None
    assert (seen.number, seen.instance) == (94, instance)


def test_a_fatal_switch_error_is_told_from_one_that_is_not():
    fatal = sighting("nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 24007, Fatal, Link 60 sourcetrack timeout")
    assert fatal is not None
    assert fatal.fatal
    harmless = sighting("nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Non-fatal, LTSSM Fault Up")
    assert harmless is not None
    assert not harmless.fatal


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05",
        "NVRM: GPU at PCI:0000:91:00: GPU-b6c3b2be-c55b-d076-fa0e-d464e4c7e08b",
        "usb 1-1: device has fallen off the bus",
        "NVRM: Xid (PCI:0000:91:00): none",
    ],
)
def test_other_lines_say_nothing(text):
    assert sighting(text) is None


def test_a_record_of_several_lines_comes_escaped_and_is_read_whole():
    record = parse_record(rb"3,42,1843308145,-,caller=T7;NVRM: The NVIDIA GPU 0000:b3:00.0\x0aNVRM: \xe2\x82\xac fell")
    assert record == Record(42, 1_843_308_145, "NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: € fell")


@pytest.mark.parametrize("line", [b" SUBSYSTEM=pci", b"", b"6,x,1,-;NVRM", b"6,1,2", b"\xff\xfe"])
def test_what_is_no_record_is_passed_over(line):
    assert parse_record(line) is None


@given(
    st.integers(0, 2**32 - 1), st.integers(0, 255), st.integers(0, 31), st.integers(0, 65_535),
    st.text(max_size=200).filter(lambda text: "\0" not in text),
)  # fmt: skip
def test_what_the_driver_prints_is_read_back(domain, bus, device, xid, rest):
    seen = sighting(f"NVRM: Xid (PCI:{domain:04x}:{bus:02x}:{device:02x}): {xid}, {rest}")
    assert seen is not None
    assert (seen.pci, seen.number) == ((domain, bus, device), xid)
    assert parse_pci(show_pci(seen.pci)) == seen.pci


@given(st.integers(0, 10**9), st.integers(0, 10**18), st.text(st.characters(codec="utf-8"), max_size=300))
def test_a_record_that_the_kernel_escaped_is_read_back(sequence, microseconds, text):
    escaped = b"".join(
        bytes([byte]) if 32 <= byte < 127 and byte != ord("\\") else b"\\x%02x" % byte for byte in text.encode()
    )
    assert parse_record(b"6,%d,%d,-;%s" % (sequence, microseconds, escaped)) == Record(sequence, microseconds, text)


@given(st.binary(max_size=400), st.text(max_size=400))
def test_nothing_that_a_log_may_hold_breaks_the_parser(line, text):
    parse_record(line)
    sighting(f"NVRM: {text}")
