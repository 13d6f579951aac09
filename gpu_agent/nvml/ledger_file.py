"""The file that keeps what the ledger of XIDs holds, so that a restart tells no XID again that NVML told of before."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from gpu_agent.nvml.ledger import KeptStream
from wire.files import read_bounded, write_private
from wire.messages import UNREADABLE

log = logging.getLogger("headworks.agent.nvml")
# A stream takes some hundred bytes, and one that storms 10 KiB.
_LIMIT_BYTES = 4 << 20


def load_ledger(file: Path) -> list[KeptStream]:
    """Nothing where no file is, or a damaged one: an XID may then be told a second time."""
    try:
        return msgspec.json.decode(read_bounded(file, _LIMIT_BYTES), type=list[KeptStream])
    except FileNotFoundError:
        return []
    except (OSError, ValueError, *UNREADABLE) as error:
        log.warning("the XIDs told before cannot be read, and may be told again: %s", error)
        return []


def keep_ledger(file: Path, kept: list[KeptStream]) -> None:
    try:
        write_private(file, msgspec.json.encode(kept))
    except OSError as error:
        log.warning("the XIDs told so far cannot be kept: %s", error)
