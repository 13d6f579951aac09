"""XIDs: what each means and asks for, as data that a site may override.

Sources: NVIDIA's XID catalogue for names and actions. Tools of the field disagree on single ones, hence the overrides.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from gpu_agent.events import Severity
from wire.files import read_bounded
from wire.messages import UNREADABLE

FELL_OFF_THE_BUS = 79
_RULES_FILE_LIMIT_BYTES = 1 << 20
XidClass = Literal["application", "sympathetic", "driver", "memory", "hardware", "nvlink", "information", "unknown"]
Action = Literal[
    "none", "restart_app", "reset_gpu", "cordon_drain_reset", "cordon_reboot", "restart_vm",
    "run_diagnostics", "check_mechanicals", "check_nvlink", "check_uvm", "read_recovery_action", "contact_support",
]  # fmt: skip
_SEVERITIES: dict[Action, Severity] = {
    "none": "info",
    "reset_gpu": "critical",
    "cordon_drain_reset": "critical",
    "cordon_reboot": "critical",
}


class XidRule(Struct, frozen=True):
    """One XID. `then` is what follows where the action does not help. `ends`: the XID that is over with it; 0: none."""

    name: str
    kind: XidClass
    action: Action
    then: Action = "none"
    ends: int = 0

    @property
    def severity(self) -> Severity:
        """Critical: the GPU cannot be used on. Info: nothing has to be done."""
        return _SEVERITIES.get(self.action, "warning")


class XidOverride(Struct, frozen=True, forbid_unknown_fields=True, rename={"kind": "class"}):
    """What a site says of one XID; what it leaves out stays as it is."""

    name: str | UnsetType = UNSET
    kind: XidClass | UnsetType = UNSET
    action: Action | UnsetType = UNSET
    then: Action | UnsetType = UNSET
    ends: Annotated[int, Meta(ge=0, le=65_535)] | UnsetType = UNSET


class BadXidRules(ValueError):
    """The overrides file cannot be used; the message says why."""


# Classes that ask for something; of the others nothing has to be done.
COUNTED_CLASSES: tuple[XidClass, ...] = ("application", "driver", "memory", "hardware", "nvlink", "unknown")
UNKNOWN = XidRule("Unknown Error", "unknown", "contact_support")


def _rules(numbers: str, kind: XidClass, action: Action, then: Action = "none") -> dict[int, XidRule]:
    return {int(xid): XidRule(_NAMES.get(int(xid), UNKNOWN.name), kind, action, then) for xid in numbers.split()}


_NAMES = {
    8: "GPU stopped processing",
    11: "Invalid or corrupted push buffer stream",
    13: "Graphics Engine Exception",
    25: "Invalid or illegal push buffer stream",
    31: "GPU memory page fault",
    32: "Invalid or corrupted push buffer stream",
    37: "Driver firmware error",
    38: "Driver firmware error",
    39: "Copy engine 0 error",
    40: "Copy engine 1 error",
    41: "Copy engine 2 error",
    43: "GPU stopped processing",
    44: "Graphics Engine fault during context switch",
    45: "Preemptive cleanup, due to previous errors",
    46: "GPU stopped processing",
    48: "Double Bit ECC Error",
    54: "Auxiliary power is not connected to the GPU board",
    61: "Internal micro-controller breakpoint/warning",
    62: "Internal micro-controller halt",
    63: "ECC page retirement or row remapping recording event",
    64: "ECC page retirement or row remapper recording failure",
    68: "NVDEC0 Exception",
    69: "Graphics Engine class error",
    74: "NVLINK Error",
    79: "GPU has fallen off the bus",
    80: "Corrupted data sent to GPU",
    92: "High single-bit ECC error rate",
    93: "Non-fatal violation of provisioned InfoROM wear limit",
    94: "Contained ECC error",
    95: "Uncontained ECC error",
    109: "Context Switch Timeout Error",
    110: "Security Fault Error",
    119: "GSP RPC Timeout",
    120: "GSP Error",
    121: "C2C Link Error",
    122: "SPI PMU RPC Read Failure",
    123: "SPI PMU RPC Write Failure",
    124: "SPI PMU RPC Erase Failure",
    125: "Inforom FS Failure",
    136: "NVLink training failed",
    137: "NVLink FLA privilege error",
    140: "Unrecovered ECC Error",
    141: "CUDA fast path error",
    143: "GPU Initialization Failure",
    144: "NVLINK: SAW Error",
    145: "NVLINK: RLW Error",
    146: "NVLINK: TLW Error",
    147: "NVLINK: TREX Error",
    148: "NVLINK: NVLPW_CTRL Error",
    149: "NVLINK: NETIR Error",
    150: "NVLINK: MSE Error",
    151: "Key rotation Error",
    154: "GPU Recovery Action Changed",
    155: "NVLINK: software-defined error",
    156: "Resource Retirement Event",
    157: "Resource Retirement Failure",
    158: "GPU Fatal Timeout",
    159: "CHI Non-Data Error",
    160: "Channel Retirement Event",
    161: "Channel Retirement Failure",
    162: "Power smoothing engaged again",
    163: "Power smoothing disengaged",
    164: "Power smoothing near the end of its lifetime",
    165: "Power smoothing at the end of its lifetime",
    166: "NVLink traffic before its encryption was set up",
    167: "PCIe fatal timeout",
    168: "GPU memory capacity reduced",
    169: "SEC2 micro-controller halt",
    170: "NVLink interrupt in confidential computing mode",
    171: "Uncorrectable DRAM error, details of an XID 48",
    172: "Uncorrectable SRAM error, details of an XID 48",
}
# NVLink 5 (144-150) is judged per unit by the driver; here 145 and 146 as most of them are, 149 as most of it.
XID_RULES: dict[int, XidRule] = {
    # On one GPU again and again, they are no application's.
    **_rules("13 31", "application", "restart_app", "run_diagnostics"),
    **_rules("8 11 25 32 39 40 41 68 69 80", "application", "restart_app"),
    **_rules("37 38 43 44", "application", "none"),
    **_rules("45", "sympathetic", "none"),
    **_rules("46 62 109 110 119 120 143 158", "driver", "reset_gpu", "contact_support"),
    **_rules("48 95", "memory", "cordon_drain_reset"),
    **_rules("54", "hardware", "check_mechanicals"),
    **_rules("61 122 123 124 125", "hardware", "contact_support"),
    **_rules("63", "memory", "none", "reset_gpu"),
    **_rules("64", "memory", "reset_gpu", "contact_support"),
    **_rules("74 144 147 148 150", "nvlink", "check_nvlink"),
    **_rules("79", "hardware", "cordon_reboot", "contact_support"),
    **_rules("92 93 121 141 157", "hardware", "none", "contact_support"),
    **_rules("94", "memory", "restart_app"),
    **_rules("136 149 155", "nvlink", "reset_gpu"),
    **_rules("137 145 146", "nvlink", "none"),
    **_rules("140 156", "memory", "reset_gpu"),
    **_rules("151", "driver", "restart_vm"),
    **_rules("154", "information", "read_recovery_action"),
    **_rules("159", "driver", "check_uvm"),
    **_rules("160 161 171 172", "information", "none"),
    # The catalogue names these, and gives no action yet.
    162: XidRule(_NAMES[162], "information", "none", ends=163),
    **_rules("163 164 165", "hardware", "none", "contact_support"),
    **_rules("166 170", "nvlink", "contact_support"),
    **_rules("167 169", "driver", "contact_support"),
    **_rules("168", "memory", "contact_support"),
}


def load_rules(overrides_file: str) -> dict[int, XidRule]:
    """The table with a site's overrides, a JSON object of XIDs: `{"94": {"action": "reset_gpu"}}`. Empty: no file.

    Raises: BadXidRules.
    """
    if not overrides_file:
        return XID_RULES
    try:
        overrides = msgspec.json.decode(
            read_bounded(Path(overrides_file), _RULES_FILE_LIMIT_BYTES), type=dict[int, XidOverride]
        )
    except (OSError, ValueError, *UNREADABLE) as error:
        raise BadXidRules(f"XID rules in {overrides_file} cannot be used: {error}") from error
    return XID_RULES | {xid: _overridden(XID_RULES.get(xid, UNKNOWN), change) for xid, change in overrides.items()}


def _overridden(rule: XidRule, change: XidOverride) -> XidRule:
    given = {name: value for name in change.__struct_fields__ if (value := getattr(change, name)) is not UNSET}
    return msgspec.structs.replace(rule, **given)
